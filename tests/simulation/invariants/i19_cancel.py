"""I19 After cancel returns nothing new of that job starts, and a late commit is refused."""

from __future__ import annotations

from tests.simulation.facts import Facts
from tests.simulation.ledger import Ledger
from tests.simulation.trace import Violation
from tests.simulation.watch import Event
from tidemill.core.changes import Cancel
from tidemill.core.outcomes import Answer
from tidemill.core.states import State


class Cancels:
    def __init__(self) -> None:
        self._cancelled: dict[str, int] = {}  # id → generation that was cancelled

    def see(self, event: Event) -> None:
        for job in event.claimed():
            if self._cancelled.get(job.id) == job.generation:
                raise Violation("I19", f"{job.id} was claimed after it was cancelled")
        if event.verb == "settle":
            self._see_settle(event)
        if event.verb == "amend" and isinstance(event.call.args[1], Cancel):
            for id_ in event.reply.changed:
                job = event.jobs[id_]
                if job.state is not State.CANCELLED:
                    raise Violation("I19", f"{id_} was cancelled and is {job.state}")
                self._cancelled[id_] = job.generation

    def _see_settle(self, event: Event) -> None:
        for item, answer in zip(event.call.args[0], event.reply.answers, strict=True):
            job = event.jobs.get(item.job)
            cancelled = job is not None and self._cancelled.get(item.job) == job.generation
            if cancelled and answer in (Answer.OK, Answer.CHARGED):
                raise Violation("I19", f"a commit of {item.job} was taken after it was cancelled")


def check_starts(ledger: Ledger, facts: Facts) -> None:
    """A handler that starts after the cancel returned had its claim before: its reply was under way."""
    for run in ledger.starts:
        cancelled = ledger.cancels.get((run.job, run.generation))
        claims = [c for c in facts.by_job.get(run.job, ()) if c.worker == run.worker and c.at <= run.at]
        if cancelled is not None and run.at > cancelled and claims and claims[-1].at > cancelled:
            raise Violation("I19", f"{run.job} started {run.at - cancelled:.3f} s after its cancel returned")
