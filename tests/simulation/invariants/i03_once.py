"""I3 Any number of sends with one id make at most one job, also 1 h after the job is gone."""

from __future__ import annotations

from tests.simulation.facts import Facts
from tests.simulation.invariants.i10_times import sent
from tests.simulation.trace import Violation
from tests.simulation.watch import Event
from tidemill.core.queues import Inserted, Verdict

REMEMBERED = 3600.0


class Once:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._first: dict[str, Inserted] = {}
        self._gone_at: dict[str, float] = {}

    def see(self, event: Event) -> None:
        for job in event.deleted():
            self._gone_at[job.id] = event.boot
        for job in event.created():
            if job.id in self._gone_at and event.boot - self._gone_at[job.id] < REMEMBERED:
                raise Violation("I3", f"{job.id} was made a second time after it was gone")
        if event.verb == "insert":
            for request, answer in sent(event):
                self._check_verdict(request.id, answer)

    def _check_verdict(self, id_: str, answer: Inserted) -> None:
        """A refused request left nothing behind and may be accepted when it is sent again."""
        first = self._first.get(id_)
        if first is not None and (first.verdict, first.id) != (answer.verdict, answer.id):
            raise Violation("I3", f"{id_} was first told {first}, then {answer}")
        if answer.verdict in (Verdict.ACCEPTED, Verdict.EXISTING):
            self._first[id_] = answer
