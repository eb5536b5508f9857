"""`pick` against the sentence that defines it (J31)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.lanes import PASS_AT_ONCE, OpenLane, pick


class Entry(msgspec.Struct, frozen=True, order=True):
    priority: int
    seq: int
    expired: bool = False


class Setting(msgspec.Struct):
    """Lanes with their jobs in order, how long ago each was served, and its room."""

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
    """Look at every head each time, and take the first in the order the module's docstring gives."""
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
def test_j31_picks_what_the_definition_picks(setting: Setting, limit: int) -> None:
    picked = pick(setting.open_lanes(), limit, 10, setting.fetch, lambda job: job.expired)
    taken, passed, touched, picks = naive(setting, limit, 10)
    assert picked.jobs == taken
    assert (picked.served, picked.picks) == (touched, picks)
    assert picked.passed == passed


def test_nothing_open_gives_nothing() -> None:
    setting = Setting({}, {}, {})
    picked = pick([], 5, 3, setting.fetch, lambda _: False)
    assert (picked.jobs, picked.picks) == ([], 3)


def test_a_long_lane_costs_what_is_taken_from_it() -> None:
    jobs = [Entry(5, seq) for seq in range(100_000)]
    setting = Setting({"a": jobs}, {"a": 0}, {"a": 10})
    fetched: list[int] = []

    def fetch(name: str, offset: int, count: int) -> Sequence[Entry]:
        fetched.append(count)
        return setting.fetch(name, offset, count)

    assert len(pick(setting.open_lanes(), 10, 0, fetch, lambda _: False).jobs) == 10
    assert sum(fetched) <= 22


@pytest.mark.parametrize("most", [1, 3, 10])
def test_no_more_jobs_are_taken_than_asked_for_however_many_calls_may_be(most: int) -> None:
    setting = Setting(
        {name: [Entry(0, seq) for seq in range(9)] for name in "ab"}, {"a": 0, "b": 0}, {"a": 9, "b": 9}
    )
    picked = pick(setting.open_lanes(), 10, 0, setting.fetch, lambda _: False, most=most)
    assert len(picked.jobs) == most


@pytest.mark.parametrize(("expired", "stopped"), [(PASS_AT_ONCE - 1, False), (PASS_AT_ONCE + 5, True)])
def test_a_claim_stops_after_so_many_that_it_passes(expired: int, stopped: bool) -> None:
    """A million expired jobs are not one step's work."""
    jobs = [Entry(0, seq, expired=seq < expired) for seq in range(expired + 1)]
    setting = Setting({"a": jobs}, {"a": 0}, {"a": 5})
    picked = pick(setting.open_lanes(), 5, 0, setting.fetch, lambda entry: entry.expired)
    assert (picked.stopped, len(picked.passed)) == (stopped, min(expired, PASS_AT_ONCE))
    assert len(picked.jobs) == (not stopped)
