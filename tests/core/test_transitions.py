"""The job after each verb: only legal transitions, no count lost (I4, I8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from tidemill.core import transitions
from tidemill.core.claims import check_fence, is_current
from tidemill.core.jobs import Error, Job, NewJob
from tidemill.core.operator_changes import (
    ArchiveJobs,
    CancelJobs,
    DeleteJobs,
    OperatorChange,
    ReprioritiseJobs,
    RetryJobs,
    RunJobsNow,
    applies_to,
    apply_change,
)
from tidemill.core.outcomes import (
    Cancellation,
    Crash,
    FinalFailure,
    JobRelease,
    Outcome,
    RetryLater,
    SmallerBatch,
    Snooze,
    Success,
    WriteAnswer,
)
from tidemill.core.queues import QueueSettings
from tidemill.core.states import (
    FINAL,
    LIVE,
    PENDING,
    TRANSITIONS,
    IllegalTransition,
    State,
    Verb,
    is_legal,
    require_legal,
)

NOW = 1_000.0
OOPS = Error("ValueError", "oops")
SETTINGS = QueueSettings(crash_limit=3)

outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Success, st.sampled_from((None, b"1"))),
    st.builds(RetryLater, st.floats(0, 100), st.just(OOPS), st.one_of(st.none(), st.integers(0, 9))),
    st.builds(Snooze, st.floats(0, 100)),
    st.builds(FinalFailure, st.just(OOPS)),
    st.builds(Cancellation, st.just("enough")),
    st.builds(SmallerBatch, st.sampled_from(("1", "2"))),
    st.builds(JobRelease, st.booleans()),
    st.builds(Crash, st.just(OOPS)),
)
changes: st.SearchStrategy[OperatorChange] = st.sampled_from(
    (CancelJobs(), ArchiveJobs(), RetryJobs(), RunJobsNow(), ReprioritiseJobs(1), DeleteJobs())
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
    "deferred_needs",
    "state",
    "attempts",
}
"""The fields of the holder that a merge changes."""


def _fields(whose: str) -> dict[str, object]:
    """Returns a distinct value for every field, except the fields that a merge test sets itself."""
    names = [name for name in Job.__struct_fields__ if name not in ("state", "priority", "due")]
    return {name: f"{whose} {name}" for name in names}


def fresh(**options: object) -> Job:
    return transitions.create_job(NewJob(id="a", task="t", payload=b"{}", **options), "q", 1, NOW)  # type: ignore[arg-type]


def running(**fields: object) -> Job:
    job = transitions.claim_job(fresh(), fence=7, claim=9, worker="w", number=1, lease=50.0, now=NOW)
    return replace(job, **fields)


@given(steps=st.lists(st.one_of(outcomes, changes, st.sampled_from(("claim", "promote", "reclaim")))))
def test_i4_no_history_has_an_illegal_transition(steps: list[Outcome | OperatorChange | str]) -> None:
    """Applies every change that is applicable; `require_legal` raises for a transition that the table does
    not have."""
    job: Job | None = fresh()
    for now, step in enumerate(steps, start=int(NOW)):
        if job is None:
            return
        before, job = job, _apply(step, job, float(now))
        if job is not None and before.state in FINAL and job.state not in FINAL:
            assert (job.generation, job.attempts, job.crashes) == (before.generation + 1, 0, 0)


def _apply(step: Outcome | OperatorChange | str, job: Job, now: float) -> Job | None:
    if isinstance(step, CancelJobs | ArchiveJobs | RetryJobs | RunJobsNow | ReprioritiseJobs | DeleteJobs):
        return apply_change(step, job, now) if applies_to(step, job) else job
    if step == "claim" and job.state is State.READY:
        return transitions.claim_job(
            job, fence=job.fence + 1, claim=5, worker="w", number=1, lease=now + 30, now=now
        )
    if step == "promote" and job.state is State.SCHEDULED:
        return transitions.promote_job(job)
    if job.state is not State.RUNNING or step in ("claim", "promote"):
        return job
    if isinstance(step, str):
        return transitions.reclaim_job(job, SETTINGS, now)
    return transitions.settle_job(job, step, SETTINGS, now)


@given(outcome=outcomes)
def test_only_done_retry_and_fail_are_charged(outcome: Outcome) -> None:
    after = transitions.settle_job(running(attempts=1), outcome, SETTINGS, NOW)
    assert after.attempts == (2 if isinstance(outcome, Success | RetryLater | FinalFailure) else 1)
    assert after.crashes == (1 if isinstance(outcome, Crash) else 0)


@given(outcome=outcomes)
def test_i6_a_settled_claim_answers_again_and_is_not_current(outcome: Outcome) -> None:
    after = transitions.settle_job(running(), outcome, SETTINGS, NOW)
    assert not is_current(after, 7, 9)
    assert check_fence(after, 7, 9) is WriteAnswer.AGAIN
    assert check_fence(after, 7, 11) is WriteAnswer.STALE


@given(outcome=outcomes)
@pytest.mark.parametrize("state", sorted(set(State) - {State.RUNNING}))
def test_i4_only_a_running_job_is_settled(state: State, outcome: Outcome) -> None:
    with pytest.raises(IllegalTransition):
        transitions.settle_job(replace(running(), state=state), outcome, SETTINGS, NOW)


def test_i19_a_lost_claim_is_refused() -> None:
    for after in (
        transitions.reclaim_job(running(), SETTINGS, NOW),
        transitions.return_unrun_job(running()),
        transitions.cancel_job(running(), "no", NOW),
    ):
        assert check_fence(after, 7, 9) is WriteAnswer.STALE
    assert check_fence(None, 7, 9) is WriteAnswer.GONE
    assert check_fence(running(), 7, 9) is WriteAnswer.OK


def test_i8_a_crash_with_other_jobs_only_makes_suspect() -> None:
    suspect = transitions.reclaim_job(running(), QueueSettings(crash_limit=1), NOW)
    assert (suspect.state, suspect.crashes, suspect.attempts) == (State.READY, 1, 0)
    alone = replace(running(), alone=True, crashes=2)
    poison = transitions.reclaim_job(alone, SETTINGS, NOW)
    assert (poison.state, poison.reason, poison.crashes) == (State.FAILED, transitions.POISON, 3)


def test_i8_a_lost_reply_is_not_a_crash() -> None:
    back = transitions.return_unrun_job(running())
    assert (back.state, back.crashes, back.attempts, back.error) == (State.READY, 0, 0, None)


@given(
    holder_due=st.floats(NOW, NOW + 50),
    delay=st.floats(0, 50),
    priorities=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_a_merge_takes_the_newest_payload_the_more_urgent_priority_and_the_earlier_time(
    holder_due: float, delay: float, priorities: tuple[int, int]
) -> None:
    mine, theirs = priorities
    holder = fresh(priority=mine, at=holder_due)
    request = transitions.create_job(
        NewJob(id="b", task="t", payload=b"2", priority=theirs, delay=delay), "q", 0, NOW
    )
    merged = transitions.merge_request(holder, request)
    assert (merged.id, merged.seq, merged.payload) == ("a", 1, b"2")
    assert merged.priority == min(mine, theirs)
    assert merged.due == min(holder.due, request.due)
    assert merged.state is (State.READY if State.READY in (holder.state, request.state) else State.SCHEDULED)


def test_j14_every_field_of_a_merge_is_the_holders_or_the_requests() -> None:
    """Two jobs that differ in every field; a field added later has to be listed here."""
    holder = Job(**_fields("holder"), state=State.SCHEDULED, priority=3, due=NOW + 60)  # type: ignore[arg-type]
    request = Job(**_fields("request"), state=State.READY, priority=5, due=NOW)  # type: ignore[arg-type]
    after = asdict(transitions.merge_request(holder, request))
    taken = {name for name in after if name in MERGED and after[name] == getattr(request, name)}
    kept = {name for name in after if name not in MERGED and after[name] == getattr(holder, name)}
    assert taken == MERGED - {"priority", "part", "deferred_needs", "attempts"}
    assert kept == set(after) - MERGED
    assert (after["priority"], after["part"], after["deferred_needs"], after["attempts"]) == (3, "", (), 0)


@given(mine=st.none() | st.floats(1, 5000), theirs=st.none() | st.floats(1, 5000))
def test_j14_a_merged_job_expires_with_its_newest_request(mine: float | None, theirs: float | None) -> None:
    """The newest data is not cancelled because older data of the same key has expired."""
    holder, request = fresh(expires=mine, delay=10.0), fresh(expires=theirs, delay=10.0)
    assert transitions.merge_request(holder, request).expires == request.expires


def test_a_waiting_successor_stays_waiting_when_merged_into() -> None:
    successor = transitions.wait_for_holder(fresh(), "holder")
    assert transitions.merge_request(successor, fresh()).state is State.WAITING
    released = transitions.release_successor(successor, NOW)
    assert (released.state, released.after) == (State.READY, None)


def test_i10_due_in_the_future_is_scheduled() -> None:
    assert fresh(delay=0.001).state is State.SCHEDULED
    assert fresh(at=NOW - 5).due == NOW
    assert fresh(at=NOW).state is State.READY


def test_an_unknown_task_is_tried_less_and_less_often_for_a_day() -> None:
    job, now = running(), NOW
    waits: list[float] = []
    while job.state is not State.FAILED:
        job = transitions.settle_job(job, JobRelease(unknown=True), SETTINGS, now)
        if job.state is State.SCHEDULED:
            waits.append(round(job.due - now, 6))
            now = job.due
            job = replace(job, state=State.RUNNING)
    assert waits == sorted(waits)
    assert waits[0] == 1.0
    assert waits[-1] == 30.0
    assert now - NOW >= transitions.UNKNOWN_TASK_SECONDS
    assert (job.reason, job.attempts) == (transitions.UNKNOWN_TASK, 0)


def test_i4_an_operators_retry_starts_from_zero() -> None:
    """The earlier run does not count against it, not even the time its task was unknown."""
    failed = transitions.settle_job(running(unknown_for=5.0), FinalFailure(OOPS), SETTINGS, NOW)
    again = apply_change(RetryJobs(), failed, NOW + 1)
    assert again is not None
    assert (again.state, again.generation) == (State.READY, failed.generation + 1)
    assert (again.attempts, again.crashes, again.unknown_for, again.claim) == (0, 0, 0.0, 0)
    assert (again.error, again.finished, again.started, again.reason) == (None, None, None, None)


def test_every_verb_has_transitions() -> None:
    assert set(TRANSITIONS) == set(Verb)


def test_states_are_final_or_live_and_running_is_not_pending() -> None:
    assert set(State) == FINAL | LIVE
    assert not FINAL & LIVE
    assert {State.RUNNING} == LIVE - PENDING


@pytest.mark.parametrize("verb", sorted(set(Verb) - {Verb.RETRY}))
@pytest.mark.parametrize("state", sorted(FINAL))
def test_i4_only_an_operators_retry_leaves_a_final_state(verb: Verb, state: State) -> None:
    assert not any(is_legal(verb, state, after) for after in State)


def test_i4_only_a_claim_starts_a_job() -> None:
    starters = {verb for verb in Verb for before in State if is_legal(verb, before, State.RUNNING)}
    assert starters == {Verb.CLAIM}


def test_i4_a_claim_takes_ready_jobs_only() -> None:
    assert [state for state in State if is_legal(Verb.CLAIM, state, State.RUNNING)] == [State.READY]


def test_only_a_release_lets_a_waiting_job_run() -> None:
    ways = {verb for verb in Verb for after in LIVE if is_legal(verb, State.WAITING, after)}
    assert ways == {Verb.RELEASE}


def test_an_illegal_transition_names_verb_and_states() -> None:
    with pytest.raises(IllegalTransition, match="claim does not move a job from done to running"):
        require_legal(Verb.CLAIM, State.DONE, State.RUNNING)
    assert require_legal(Verb.CLAIM, State.READY, State.RUNNING) is State.RUNNING
