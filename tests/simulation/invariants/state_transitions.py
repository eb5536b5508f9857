"""I4, I19, J34, J36: only legal state transitions; cancels, pauses and expiry hold."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.claim_history import ClaimHistory
from tests.simulation.outcome_log import OutcomeLog
from tests.simulation.store_monitor import VerbEvent, identity
from tests.simulation.trace import Violation
from tidemill.core.jobs import Job
from tidemill.core.operator_changes import (
    ArchiveJobs,
    CancelJobs,
    DeleteJobs,
    ReprioritiseJobs,
    RetryJobs,
    RunJobsNow,
)
from tidemill.core.outcomes import WriteAnswer
from tidemill.core.queues import Pause
from tidemill.core.states import FINAL, PENDING, TRANSITIONS, State, Verb
from tidemill.core.transitions import REPLACED, is_expired

_CLAIM = {Verb.PROMOTE, Verb.CLAIM, Verb.EXPIRE, Verb.RELEASE}
_INSERT = {Verb.CANCEL, Verb.PROMOTE, Verb.RELEASE}
_STEPS: dict[str, set[Verb]] = {
    "insert": _INSERT,
    "admit": _INSERT,
    "claim": _CLAIM,
    "settle": _CLAIM | {Verb.SETTLE, Verb.CANCEL},
    "extend": {Verb.RECLAIM},
    "reclaim": {Verb.RECLAIM, Verb.RELEASE},
    "prune": {Verb.EXPIRE, Verb.RELEASE},
}
_AMEND: dict[type, set[Verb]] = {
    CancelJobs: {Verb.CANCEL, Verb.RELEASE},
    ArchiveJobs: {Verb.ARCHIVE, Verb.RELEASE},
    RetryJobs: {Verb.RETRY},
    RunJobsNow: {Verb.RUN},
    ReprioritiseJobs: set(),
    DeleteJobs: {Verb.RELEASE},
}


def _reachable(steps: frozenset[Verb]) -> dict[State, set[State]]:
    """Returns the states in which one atomic verb may leave a job: several legal transitions in a row."""
    reach = {state: {s for step in steps for s in TRANSITIONS[step].get(state, ())} for state in State}
    for _ in State:
        for targets in reach.values():
            targets.update(*[reach[state] for state in targets])
    return reach


class LegalMoves:
    def __init__(self) -> None:
        self._reach: dict[frozenset[Verb], dict[State, set[State]]] = {}

    def see(self, event: VerbEvent) -> None:
        if not event.changes:
            return
        steps = frozenset(_steps_of(event))
        if steps not in self._reach:
            self._reach[steps] = _reachable(steps)
        for id_, (before, after) in event.changes.items():
            if before is None and after is not None:
                _check_birth(event, after)
            elif before is not None and after is None:
                _check_end(event, before)
            elif before is not None and after is not None:
                self._check_move(event, id_, before, after, self._reach[steps])

    def _check_move(
        self, event: VerbEvent, id_: str, before: Job, after: Job, reach: dict[State, set[State]]
    ) -> None:
        moved = before.state is not after.state or (
            after.state is State.RUNNING and identity(before) != identity(after)
        )
        if moved and after.state not in reach[before.state]:
            raise Violation("I4", f"{event.verb} moved {id_} from {before.state} to {after.state}")
        if after.seq != before.seq:
            raise Violation("I4", f"{event.verb} took {id_} its place in the queue (J43)")
        new_generation = before.state in FINAL and after.state not in FINAL
        if after.generation != before.generation + new_generation:
            raise Violation(
                "I4", f"{event.verb} made generation {after.generation} of {id_} ({before.generation})"
            )


def _steps_of(event: VerbEvent) -> set[Verb]:
    if event.verb == "amend":
        return _AMEND[type(event.call.args[1])]
    return _STEPS.get(event.verb, set())


def _check_birth(event: VerbEvent, job: Job) -> None:
    """A request may be replaced by another one of the same insert; an arrival may be refused (J21)."""
    replaced = job.state is State.CANCELLED and job.reason == REPLACED
    refused = job.state is State.FAILED and event.verb in ("admit", "advance")
    if event.verb not in ("insert", "admit", "advance") or not (job.state in PENDING or replaced or refused):
        raise Violation("I4", f"{event.verb} made {job.id} appear as {job.state}")


def _check_end(event: VerbEvent, job: Job) -> None:
    """The same prune may cancel and delete an expired job."""
    ended = job.state in FINAL or (job.state in PENDING and is_expired(job, event.wall))
    deleted = (
        event.verb == "amend"
        and isinstance(event.call.args[1], DeleteJobs)
        and job.state is not State.RUNNING
    )
    if not deleted and not (event.verb == "prune" and ended):
        raise Violation("I4", f"{event.verb} made {job.id} vanish as {job.state}")


class Cancels:
    def __init__(self) -> None:
        self._cancelled: dict[str, int] = {}  # id → cancelled generation

    def see(self, event: VerbEvent) -> None:
        for job in event.claimed():
            if self._cancelled.get(job.id) == job.generation:
                raise Violation("I19", f"{job.id} was claimed after it was cancelled")
        if event.verb == "settle":
            self._see_settle(event)
        if event.verb == "amend" and isinstance(event.call.args[1], CancelJobs):
            for id_ in event.reply.changed:
                job = event.jobs[id_]
                if job.state is not State.CANCELLED:
                    raise Violation("I19", f"{id_} was cancelled and is {job.state}")
                self._cancelled[id_] = job.generation

    def _see_settle(self, event: VerbEvent) -> None:
        for item, answer in zip(event.call.args[0], event.reply.answers, strict=True):
            job = event.jobs.get(item.job)
            cancelled = job is not None and self._cancelled.get(item.job) == job.generation
            if cancelled and answer in (WriteAnswer.OK, WriteAnswer.CHARGED):
                raise Violation("I19", f"a commit of {item.job} was taken after it was cancelled")


def check_starts(outcome_log: OutcomeLog, claim_history: ClaimHistory) -> None:
    """A handler that starts after the cancel returned was claimed before; the reply of its claim was in
    flight."""
    for run in outcome_log.starts:
        cancelled = outcome_log.cancels.get((run.job, run.generation))
        claims = [
            c for c in claim_history.by_job.get(run.job, ()) if c.worker == run.worker and c.at <= run.at
        ]
        if cancelled is not None and run.at > cancelled and claims and claims[-1].at > cancelled:
            raise Violation("I19", f"{run.job} started {run.at - cancelled:.3f} s after its cancel returned")


class OnlyOpen:
    def __init__(self, pause_of: Callable[[str], Pause | None]) -> None:
        self._pause_of = pause_of

    def see(self, event: VerbEvent) -> None:
        for job in event.claimed():
            pause = self._pause_of(job.queue)
            if pause is not None and (pause.until is None or event.wall < pause.until):
                raise Violation("J34", f"{job.id} was claimed from {job.queue!r}, which is paused")
            if job.expires is not None and event.wall >= job.expires:
                raise Violation(
                    "J36", f"{job.id} was claimed {event.wall - job.expires:.3f} s after it expired"
                )
