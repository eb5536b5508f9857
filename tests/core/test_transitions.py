"""What the verbs make of a job: never an illegal move, never a count lost (I4, I8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from tidemill.core import transitions
from tidemill.core.changes import (
    Archive,
    Cancel,
    Change,
    Delete,
    Reprioritise,
    RetryNow,
    RunNow,
    applies_to,
    changed,
)
from tidemill.core.claims import answer_to, is_current
from tidemill.core.job import Error, Job, NewJob
from tidemill.core.outcomes import (
    Answer,
    Cancelled,
    Crashed,
    Done,
    Fail,
    Outcome,
    Release,
    Retrying,
    Snooze,
    Split,
)
from tidemill.core.queues import QueueSettings
from tidemill.core.states import FINAL, IllegalTransition, State

NOW = 1_000.0
OOPS = Error("ValueError", "oops")
SETTINGS = QueueSettings(crash_limit=3)

outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Done, st.sampled_from((None, b"1"))),
    st.builds(Retrying, st.floats(0, 100), st.just(OOPS), st.one_of(st.none(), st.integers(0, 9))),
    st.builds(Snooze, st.floats(0, 100)),
    st.builds(Fail, st.just(OOPS)),
    st.builds(Cancelled, st.just("enough")),
    st.builds(Split, st.sampled_from(("1", "2"))),
    st.builds(Release, st.booleans()),
    st.builds(Crashed, st.just(OOPS)),
)
changes: st.SearchStrategy[Change] = st.sampled_from(
    (Cancel(), Archive(), RetryNow(), RunNow(), Reprioritise(1), Delete())
)


MERGED = {
    "task",
    "payload",
    "priority",
    "due",
    "expires",
    "lane",
    "needs",
    "batching",
    "part",
    "extra",
    "state",
    "attempts",
}
"""What a merge changes of the holder."""


def _fields(whose: str) -> dict[str, object]:
    """A value of its own for every field, but for those a test of merges gives itself."""
    names = [name for name in Job.__struct_fields__ if name not in ("state", "priority", "due")]
    return {name: f"{whose} {name}" for name in names}


def fresh(**options: object) -> Job:
    return transitions.created(NewJob(id="a", task="t", payload=b"{}", **options), "q", 1, NOW)  # type: ignore[arg-type]


def running(**fields: object) -> Job:
    job = transitions.claimed(fresh(), fence=7, claim=9, worker="w", number=1, lease=50.0, now=NOW)
    return replace(job, **fields)


@given(steps=st.lists(st.one_of(outcomes, changes, st.sampled_from(("claim", "promote", "reclaim")))))
def test_i4_no_history_makes_an_illegal_move(steps: list[Outcome | Change | str]) -> None:
    """Whatever applies is applied; `require` inside would raise on a move the table does not know."""
    job: Job | None = fresh()
    for now, step in enumerate(steps, start=int(NOW)):
        if job is None:
            return
        before, job = job, _apply(step, job, float(now))
        if job is not None and before.state in FINAL and job.state not in FINAL:
            assert (job.generation, job.attempts, job.crashes) == (before.generation + 1, 0, 0)


def _apply(step: Outcome | Change | str, job: Job, now: float) -> Job | None:
    if isinstance(step, Cancel | Archive | RetryNow | RunNow | Reprioritise | Delete):
        return changed(step, job, now) if applies_to(step, job) else job
    if step == "claim" and job.state is State.READY:
        return transitions.claimed(
            job, fence=job.fence + 1, claim=5, worker="w", number=1, lease=now + 30, now=now
        )
    if step == "promote" and job.state is State.SCHEDULED:
        return transitions.promoted(job)
    if job.state is not State.RUNNING or step in ("claim", "promote"):
        return job
    if isinstance(step, str):
        return transitions.reclaimed(job, SETTINGS, now)
    return transitions.settled(job, step, SETTINGS, now)


@given(outcome=outcomes)
def test_only_done_retry_and_fail_are_charged(outcome: Outcome) -> None:
    after = transitions.settled(running(attempts=1), outcome, SETTINGS, NOW)
    assert after.attempts == (2 if isinstance(outcome, Done | Retrying | Fail) else 1)
    assert after.crashes == (1 if isinstance(outcome, Crashed) else 0)


@given(outcome=outcomes)
def test_i6_a_settled_claim_is_known_again_and_not_current(outcome: Outcome) -> None:
    after = transitions.settled(running(), outcome, SETTINGS, NOW)
    assert not is_current(after, 7, 9)
    assert answer_to(after, 7, 9) is Answer.AGAIN
    assert answer_to(after, 7, 11) is Answer.STALE


@given(outcome=outcomes)
@pytest.mark.parametrize("state", sorted(set(State) - {State.RUNNING}))
def test_i4_only_a_running_job_is_settled(state: State, outcome: Outcome) -> None:
    with pytest.raises(IllegalTransition):
        transitions.settled(replace(running(), state=state), outcome, SETTINGS, NOW)


def test_i19_whoever_loses_a_claim_is_refused() -> None:
    for after in (
        transitions.reclaimed(running(), SETTINGS, NOW),
        transitions.returned(running()),
        transitions.cancelled(running(), "no", NOW),
    ):
        assert answer_to(after, 7, 9) is Answer.STALE
    assert answer_to(None, 7, 9) is Answer.GONE
    assert answer_to(running(), 7, 9) is Answer.OK


def test_i8_a_crash_in_company_is_only_suspect() -> None:
    suspect = transitions.reclaimed(running(), QueueSettings(crash_limit=1), NOW)
    assert (suspect.state, suspect.crashes, suspect.attempts) == (State.READY, 1, 0)
    alone = replace(running(), alone=True, crashes=2)
    poison = transitions.reclaimed(alone, SETTINGS, NOW)
    assert (poison.state, poison.reason, poison.crashes) == (State.FAILED, transitions.POISON, 3)


def test_i8_a_lost_reply_is_no_crash() -> None:
    back = transitions.returned(running())
    assert (back.state, back.crashes, back.attempts, back.error) == (State.READY, 0, 0, None)


@given(
    holder_due=st.floats(NOW, NOW + 50),
    delay=st.floats(0, 50),
    priorities=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_merging_takes_the_newest_payload_the_more_urgent_and_the_earlier(
    holder_due: float, delay: float, priorities: tuple[int, int]
) -> None:
    mine, theirs = priorities
    holder = fresh(priority=mine, at=holder_due)
    request = transitions.created(
        NewJob(id="b", task="t", payload=b"2", priority=theirs, delay=delay), "q", 0, NOW
    )
    merged = transitions.merged(holder, request)
    assert (merged.id, merged.seq, merged.payload) == ("a", 1, b"2")
    assert merged.priority == min(mine, theirs)
    assert merged.due == min(holder.due, request.due)
    assert merged.state is (State.READY if State.READY in (holder.state, request.state) else State.SCHEDULED)


def test_j14_every_field_of_a_merge_is_the_holders_or_the_requests() -> None:
    """Two jobs that differ in every field; a field that is added later has to be placed here."""
    holder = Job(**_fields("holder"), state=State.SCHEDULED, priority=3, due=NOW + 60)  # type: ignore[arg-type]
    request = Job(**_fields("request"), state=State.READY, priority=5, due=NOW)  # type: ignore[arg-type]
    after = asdict(transitions.merged(holder, request))
    taken = {name for name in after if name in MERGED and after[name] == getattr(request, name)}
    kept = {name for name in after if name not in MERGED and after[name] == getattr(holder, name)}
    assert taken == MERGED - {"priority", "part", "extra", "attempts"}
    assert kept == set(after) - MERGED
    assert (after["priority"], after["part"], after["extra"], after["attempts"]) == (3, "", (), 0)


@given(mine=st.none() | st.floats(1, 5000), theirs=st.none() | st.floats(1, 5000))
def test_j14_a_merged_job_expires_with_its_newest_request(mine: float | None, theirs: float | None) -> None:
    """The newest data is not cancelled because older data of the same key has expired."""
    holder, request = fresh(expires=mine, delay=10.0), fresh(expires=theirs, delay=10.0)
    assert transitions.merged(holder, request).expires == request.expires


def test_a_waiting_successor_stays_waiting_when_merged_into() -> None:
    successor = transitions.waiting_for(fresh(), "holder")
    assert transitions.merged(successor, fresh()).state is State.WAITING
    released = transitions.released(successor, NOW)
    assert (released.state, released.after) == (State.READY, None)


def test_i10_due_in_the_future_is_scheduled() -> None:
    assert fresh(delay=0.001).state is State.SCHEDULED
    assert fresh(at=NOW - 5).due == NOW
    assert fresh(at=NOW).state is State.READY


def test_an_unknown_task_is_tried_ever_less_often_for_a_day() -> None:
    job, now = running(), NOW
    waits: list[float] = []
    while job.state is not State.FAILED:
        job = transitions.settled(job, Release(unknown=True), SETTINGS, now)
        if job.state is State.SCHEDULED:
            waits.append(round(job.due - now, 6))
            now = job.due
            job = replace(job, state=State.RUNNING)
    assert waits == sorted(waits)
    assert waits[0] == 1.0
    assert waits[-1] == 30.0
    assert now - NOW >= transitions.UNKNOWN_TASK_PATIENCE
    assert (job.reason, job.attempts) == (transitions.UNKNOWN_TASK, 0)


def test_i4_a_job_that_is_retried_by_hand_begins_anew() -> None:
    """Nothing of the earlier run counts against it, not even how long its task was unknown."""
    failed = transitions.settled(running(unknown_for=5.0), Fail(OOPS), SETTINGS, NOW)
    again = changed(RetryNow(), failed, NOW + 1)
    assert again is not None
    assert (again.state, again.generation) == (State.READY, failed.generation + 1)
    assert (again.attempts, again.crashes, again.unknown_for, again.claim) == (0, 0, 0.0, 0)
    assert (again.error, again.finished, again.started, again.reason) == (None, None, None, None)
