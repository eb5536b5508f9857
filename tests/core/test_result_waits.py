"""The note of a wait, and deadlocks of waiting attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.jobs import Job
from tidemill.core.needs import Need, lane_name
from tidemill.core.queues import QueueSettings
from tidemill.core.result_waits import (
    MAX_IDS_IN_NOTE,
    NotedWait,
    SharedCapacity,
    WaitTarget,
    find_stuck_jobs,
    parse_wait_note,
    shared_capacities,
    wait_note,
)
from tidemill.core.states import State

ids = st.text("abc-/ .0", min_size=1, max_size=8).map(str.strip).filter(lambda id_: id_ and ", " not in id_)
targets = st.builds(WaitTarget, st.sampled_from(("job", "flow")), ids)


def job(id_: str, state: State = State.READY, *needs: Need, queue: str = "q", key: str = "") -> Job:
    return Job(
        seq=1,
        id=id_,
        queue=queue,
        task="t",
        payload=b"{}",
        state=state,
        priority=5,
        lane=lane_name(key, needs),
        created=0.0,
        due=0.0,
        needs=needs,
    )


@given(st.lists(targets, min_size=1, max_size=2 * MAX_IDS_IN_NOTE))
def test_a_note_is_read_as_it_was_written(waits: list[WaitTarget]) -> None:
    assert parse_wait_note(wait_note(waits)) == NotedWait(
        tuple(waits[:MAX_IDS_IN_NOTE]), max(0, len(waits) - MAX_IDS_IN_NOTE)
    )


@pytest.mark.parametrize("note", [None, "", "half", "waits for the result of the vote", "waits for job 1"])
def test_a_note_of_the_handler_is_not_a_wait(note: str | None) -> None:
    assert parse_wait_note(note) is None


@given(st.integers(1, 6), st.lists(st.integers(0, 3), max_size=8))
def test_slots_are_stuck_if_every_holder_waits_for_another_job_of_the_queue(
    places: int, waits: list[int]
) -> None:
    """A job that waits for nothing, or for a job of another queue, may end."""
    capacity = SharedCapacity(name="places", amount=places, queue="q")
    awaited = {0: [], 1: [job("c")], 2: [job("c"), job("d", queue="other")], 3: [job("c"), job("d")]}
    holders = [(job(f"h{n}", State.RUNNING), awaited[kind]) for n, kind in enumerate(waits)]
    blocked = {holder.id for (holder, _), kind in zip(holders, waits, strict=True) if kind in (1, 3)}
    assert find_stuck_jobs(capacity, holders) == (blocked if len(blocked) >= places else set())


def test_units_are_stuck_only_for_jobs_that_do_not_fit_beside_them() -> None:
    """Both jobs hold 4 of 10 units. A wait for 7 never fits beside its own 4. A job of 2 fits at once, and
    the units that its parent then returns are enough for a job of 6."""
    capacity = SharedCapacity(name="units", amount=10, pool="p", unit="slots")

    def needing(id_: str, amount: float, state: State = State.READY) -> Job:
        return job(id_, state, Need("p", None, {"slots": amount}))

    def holder(id_: str) -> Job:
        return needing(id_, 4, State.RUNNING)

    assert find_stuck_jobs(
        capacity, [(holder("a"), [needing("c", 7)]), (holder("b"), [needing("d", 2)])]
    ) == {"a"}
    assert find_stuck_jobs(
        capacity, [(holder("a"), [needing("c", 3)]), (holder("b"), [needing("d", 3)])]
    ) == {
        "a",
        "b",
    }
    assert (
        find_stuck_jobs(capacity, [(holder("a"), [needing("c", 6)]), (holder("b"), [needing("d", 2)])])
        == set()
    )


def test_a_job_without_limits_takes_no_share() -> None:
    assert shared_capacities(job("a", key="k"), QueueSettings(), {}) == []
    limited = QueueSettings(concurrency=2, key_concurrency=1)
    assert [each.amount for each in shared_capacities(job("a", key="k"), limited, {})] == [2, 1]
    assert [each.amount for each in shared_capacities(job("a"), limited, {})] == [2]
