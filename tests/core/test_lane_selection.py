"""`select_jobs` compared with the sentence that defines it (J31)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.lane_selection import MAX_EXPIRED_PER_CLAIM, OpenLane, select_jobs


class Entry(msgspec.Struct, frozen=True, order=True):
    priority: int
    seq: int
    expired: bool = False


class Setting(msgspec.Struct):
    """Lanes with their jobs in order, when each was last served, and its free slots."""

    jobs: dict[str, list[Entry]]
    served: dict[str, int]
    room: dict[str, int]

    def open_lanes(self) -> list[OpenLane]:
        return [
            OpenLane(name, self.served[name], jobs[0].priority, jobs[0].seq, self.room[name])
            for name, jobs in self.jobs.items()
        ]

    def fetch(self, name: str, offset: int, count: int) -> Sequence[Entry]:
        return self.jobs[name][offset : offset + count]


@st.composite
def settings(draw: st.DrawFn) -> Setting:
    entries = draw(
        st.lists(
            st.tuples(st.sampled_from("abcde"), st.integers(0, 2), st.booleans()), min_size=1, max_size=40
        )
    )
    jobs: dict[str, list[Entry]] = {}
    for seq, (name, priority, expired) in enumerate(entries):
        jobs.setdefault(name, []).append(Entry(priority, seq, expired))
    for lane in jobs.values():
        lane.sort()
    served = {name: draw(st.integers(0, 5)) for name in jobs}
    room = {name: draw(st.integers(1, 6)) for name in jobs}
    return Setting(jobs, served, room)


def naive(setting: Setting, limit: int, picks: int) -> tuple[list[Entry], list[Entry], dict[str, int], int]:
    """Examines every head each time and takes the first in the order of the module's docstring."""
    left = {name: list(jobs) for name, jobs in setting.jobs.items()}
    served, room = dict(setting.served), dict(setting.room)
    taken: list[Entry] = []
    passed: list[Entry] = []
    touched: dict[str, int] = {}
    while len(taken) < limit:
        heads = [
            (jobs[0].priority, served[name], jobs[0].seq, name)
            for name, jobs in left.items()
            if jobs and room[name] > 0
        ]
        if not heads:
            break
        name = min(heads)[3]
        head = left[name].pop(0)
        if head.expired:
            passed.append(head)
            continue
        taken.append(head)
        picks += 1
        served[name] = touched[name] = picks
        room[name] -= 1
    return taken, passed, touched, picks


@given(setting=settings(), limit=st.integers(1, 30))
def test_j31_selects_the_same_jobs_as_the_definition(setting: Setting, limit: int) -> None:
    picked = select_jobs(setting.open_lanes(), limit, 10, setting.fetch, lambda job: job.expired)
    taken, passed, touched, picks = naive(setting, limit, 10)
    assert picked.jobs == taken
    assert (picked.served, picked.picks) == (touched, picks)
    assert picked.passed == passed


def test_without_open_lanes_no_job_is_selected() -> None:
    setting = Setting({}, {}, {})
    picked = select_jobs([], 5, 3, setting.fetch, lambda _: False)
    assert (picked.jobs, picked.picks) == ([], 3)


def test_a_long_lane_costs_only_what_is_taken_from_it() -> None:
    jobs = [Entry(5, seq) for seq in range(100_000)]
    setting = Setting({"a": jobs}, {"a": 0}, {"a": 10})
    fetched: list[int] = []

    def fetch(name: str, offset: int, count: int) -> Sequence[Entry]:
        fetched.append(count)
        return setting.fetch(name, offset, count)

    assert len(select_jobs(setting.open_lanes(), 10, 0, fetch, lambda _: False).jobs) == 10
    assert sum(fetched) <= 22


@pytest.mark.parametrize("most", [1, 3, 10])
def test_a_claim_takes_at_most_the_requested_jobs(most: int) -> None:
    setting = Setting(
        {name: [Entry(0, seq) for seq in range(9)] for name in "ab"}, {"a": 0, "b": 0}, {"a": 9, "b": 9}
    )
    picked = select_jobs(setting.open_lanes(), 10, 0, setting.fetch, lambda _: False, most=most)
    assert len(picked.jobs) == most


@pytest.mark.parametrize(
    ("expired", "stopped"), [(MAX_EXPIRED_PER_CLAIM - 1, False), (MAX_EXPIRED_PER_CLAIM + 5, True)]
)
def test_a_claim_stops_after_the_maximum_of_expired_jobs(expired: int, stopped: bool) -> None:
    """A million expired jobs are too many for one transaction."""
    jobs = [Entry(0, seq, expired=seq < expired) for seq in range(expired + 1)]
    setting = Setting({"a": jobs}, {"a": 0}, {"a": 5})
    picked = select_jobs(setting.open_lanes(), 5, 0, setting.fetch, lambda entry: entry.expired)
    assert (picked.stopped, len(picked.passed)) == (stopped, min(expired, MAX_EXPIRED_PER_CLAIM))
    assert len(picked.jobs) == (not stopped)
