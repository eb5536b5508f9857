"""I10, I22, I23, I26: due times, deadlines, lost wake-ups and wrong clocks."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.claim_history import ClaimHistory
from tests.simulation.outcome_log import OutcomeLog
from tests.simulation.store_monitor import VerbEvent
from tests.simulation.trace import Violation
from tidemill.contract.jobs import Admission
from tidemill.core.jobs import Job, JobGroup, NewJob
from tidemill.core.operator_changes import RetryJobs, RunJobsNow
from tidemill.core.outcomes import RetryLater, Snooze, WriteAnswer
from tidemill.core.queues import InsertResult
from tidemill.core.states import State
from tidemill.core.transitions import UNKNOWN_TASK

_WAITS = (State.SCHEDULED, State.WAITING)


class Times:
    """Computes due times from the requests; a job leaves its wait only after them."""

    def __init__(self) -> None:
        self._not_before: dict[str, float] = {}

    def see(self, event: VerbEvent) -> None:
        if event.verb == "insert":
            self._see_insert(event)
        elif event.verb == "settle":
            self._see_settle(event)
        elif event.verb == "amend" and isinstance(event.call.args[1], RunJobsNow | RetryJobs):
            self._not_before.update(dict.fromkeys(event.reply.changed, event.wall))
        for id_, (before, after) in event.changes.items():
            if after is None:
                continue
            startable = after.state in (State.READY, State.RUNNING)
            waited = before is None or before.state in _WAITS
            early = self._not_before.get(id_, 0.0) - event.wall
            if startable and waited and early > 0:
                raise Violation("I10", f"{event.verb} made {id_} {after.state} {early:.3f} s before its time")
            if startable and waited:
                self._not_before.pop(id_, None)  # the job was due once; later clock changes do not matter

    def _see_insert(self, event: VerbEvent) -> None:
        for request, answer in sent(event):
            due = request.at if request.at is not None else event.wall + request.delay
            before, after = event.changes.get(answer.id, (None, None))
            if before is None and after is not None and answer.id == request.id:
                self._not_before.setdefault(request.id, due)
            elif before is not after and answer.id in self._not_before:
                self._not_before[answer.id] = min(self._not_before[answer.id], due)

    def _see_settle(self, event: VerbEvent) -> None:
        for item, answer in zip(event.call.args[0], event.reply.answers, strict=True):
            outcome = item.charged if answer is WriteAnswer.CHARGED else item.outcome
            accepted = answer in (WriteAnswer.OK, WriteAnswer.CHARGED)
            if accepted and isinstance(outcome, RetryLater | Snooze):
                self._not_before[item.job] = event.wall + outcome.delay
                if item.job in event.changes:
                    self._check_postponed(event, item.job)

    def _check_postponed(self, event: VerbEvent, id_: str) -> None:
        _, after = event.changes[id_]
        early = self._not_before[id_] - event.wall
        if after is not None and after.state in (State.READY, State.RUNNING) and early > 0:
            raise Violation("I10", f"{id_} was to wait {early:.3f} s and is {after.state} at once")


def sent(event: VerbEvent) -> Iterator[tuple[NewJob, InsertResult]]:
    """Yields every request of an insert with its answer."""
    if event.verb != "insert":
        return
    groups: list[JobGroup] = event.call.args[0]
    for group, answers in zip(groups, event.reply, strict=True):
        yield from zip(group.jobs, answers, strict=True)


def admitted(event: VerbEvent) -> tuple[Admission, ...]:
    return tuple(event.call.args[0]) if event.verb == "admit" else ()


DEADLINE = 5.0


def check_deadline(outcome_log: OutcomeLog) -> None:
    for id_, seconds in outcome_log.enqueues:
        if seconds > DEADLINE + 0.001:
            raise Violation("I22", f"the enqueue of {id_} took {seconds:.3f} s")


def check_started_in_time(
    claim_history: ClaimHistory, jobs: dict[str, Job], epoch: float, within: float
) -> None:
    """Checked only in quiet histories: workers with free slots, a good network, no limits, no clock steps."""
    for job in jobs.values():
        claims = claim_history.by_job.get(job.id)
        if claims is None:
            continue
        late = claims[0].at - (max(job.created, claim_history.due.get(job.id, job.created)) - epoch)
        if late > within:
            raise Violation("I23", f"{job.id} was claimed {late:.3f} s after it was due")


class Clocks:
    def see(self, event: VerbEvent) -> None:
        for id_, (before, after) in event.changes.items():
            if before is None or after is None or before.state is after.state:
                continue
            if after.state is State.FAILED and after.reason == UNKNOWN_TASK:
                raise Violation(
                    "I26", f"{id_} failed as unknown for a day, {event.boot:.0f} s into the history"
                )
