"""I10 Nothing starts before its time by the store's clock."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.trace import Violation
from tests.simulation.watch import Event
from tidemill.contract.jobs import Admission
from tidemill.core.changes import RetryNow, RunNow
from tidemill.core.job import Group, NewJob
from tidemill.core.outcomes import Answer, Retrying, Snooze
from tidemill.core.queues import Inserted
from tidemill.core.states import State

_WAITS = (State.SCHEDULED, State.WAITING)


class Times:
    """Keeps its own due times, from what was asked; a job leaves its wait only after them."""

    def __init__(self) -> None:
        self._not_before: dict[str, float] = {}

    def see(self, event: Event) -> None:
        if event.verb == "insert":
            self._see_insert(event)
        elif event.verb == "settle":
            self._see_settle(event)
        elif event.verb == "amend" and isinstance(event.call.args[1], RunNow | RetryNow):
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
                self._not_before.pop(id_, None)  # its time has come once, whatever the clock does next

    def _see_insert(self, event: Event) -> None:
        for request, answer in sent(event):
            due = request.at if request.at is not None else event.wall + request.delay
            before, after = event.changes.get(answer.id, (None, None))
            if before is None and after is not None and answer.id == request.id:
                self._not_before.setdefault(request.id, due)
            elif before is not after and answer.id in self._not_before:
                self._not_before[answer.id] = min(self._not_before[answer.id], due)

    def _see_settle(self, event: Event) -> None:
        for item, answer in zip(event.call.args[0], event.reply.answers, strict=True):
            outcome = item.charged if answer is Answer.CHARGED else item.outcome
            accepted = answer in (Answer.OK, Answer.CHARGED)
            if accepted and isinstance(outcome, Retrying | Snooze):
                self._not_before[item.job] = event.wall + outcome.delay
                if item.job in event.changes:
                    self._check_postponed(event, item.job)

    def _check_postponed(self, event: Event, id_: str) -> None:
        _, after = event.changes[id_]
        early = self._not_before[id_] - event.wall
        if after is not None and after.state in (State.READY, State.RUNNING) and early > 0:
            raise Violation("I10", f"{id_} was to wait {early:.3f} s and is {after.state} at once")


def sent(event: Event) -> Iterator[tuple[NewJob, Inserted]]:
    """Every request of an insert with its answer."""
    if event.verb != "insert":
        return
    groups: list[Group] = event.call.args[0]
    for group, answers in zip(groups, event.reply, strict=True):
        yield from zip(group.jobs, answers, strict=True)


def admitted(event: Event) -> tuple[Admission, ...]:
    return tuple(event.call.args[0]) if event.verb == "admit" else ()
