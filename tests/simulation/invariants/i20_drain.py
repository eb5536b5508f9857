"""I20 SIGTERM: no new claim; at the end of grace the lease is handed back and no attempt charged."""

from __future__ import annotations

from tests.simulation.facts import Facts, claim_request
from tests.simulation.ledger import Ledger
from tests.simulation.trace import Violation
from tests.simulation.watch import Event
from tidemill.core.outcomes import Answer, Release


class Drains:
    def __init__(self, ledger: Ledger, facts: Facts) -> None:
        self._ledger = ledger
        self._facts = facts

    def see(self, event: Event) -> None:
        request = claim_request(event)
        if request is not None:
            # A number sent before SIGTERM may be repeated after it, to learn what it got.
            last = self._ledger.last_number.get(request.worker)
            if last is not None and request.number > last:
                raise Violation("I20", f"{request.worker} claimed (number {request.number}) after SIGTERM")
        if event.verb == "settle":
            self._check_interrupted(event)

    def _check_interrupted(self, event: Event) -> None:
        """A handler that the end of grace cut short is handed back, not failed."""
        for item, answer in zip(event.call.args[0], event.reply.answers, strict=True):
            claim = self._facts.claim(item.job, item.fence, item.claim)
            if answer is not Answer.OK or claim is None or claim.worker not in self._ledger.last_number:
                continue
            runs = [r for r in self._ledger.interrupted if r.job == item.job and r.worker == claim.worker]
            if any(run.at >= claim.at for run in runs) and not isinstance(item.outcome, Release):
                word = type(item.outcome).__name__
                raise Violation("I20", f"{item.job} was cut short by a drain and settled as {word}")


def check_handed_back(ledger: Ledger, facts: Facts) -> None:
    """A worker that returned undisturbed from its drain holds nothing any more."""
    for claims in facts.by_job.values():
        last = claims[-1]
        if last.worker in ledger.drained and last.current:
            raise Violation("I20", f"{last.job} is still with {last.worker}, which has drained")


def check_drains_end(ledger: Ledger, within: float) -> None:
    """Handlers that listen are gone when the grace time is over, and so is their worker."""
    for worker, seconds in ledger.drained.items():
        if seconds > within:
            raise Violation("I20", f"{worker} took {seconds:.3f} s to drain")
