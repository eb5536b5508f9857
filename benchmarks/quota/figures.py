"""What the provider's books say about a run."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.testing.providers import Ledger


@dataclass(frozen=True)
class Figures:
    """seconds: from the first call's arrival to the last job's answer, in the provider's time; None when
    not every job was answered. best: the shortest anybody could need."""

    jobs: int
    drained: int
    refused: int
    paid_twice: int
    seconds: float | None
    best: float

    @property
    def ratio(self) -> float | None:
        return None if self.seconds is None else self.seconds / self.best


def figures(ledger: Ledger, jobs: int, best: float) -> Figures:
    answered = _first_answers(ledger)
    drained = len(answered)
    began = min((arrival.at for arrival in ledger.arrivals), default=0.0)
    complete = drained == jobs and jobs > 0
    return Figures(
        jobs=jobs,
        drained=drained,
        refused=len(ledger.refused),
        paid_twice=paid_twice(ledger),
        seconds=max(answered.values()) - began if complete else None,
        best=best,
    )


def paid_twice(ledger: Ledger) -> int:
    """Calls that arrived for a job whose answer had been given, and were billed. A call after an answer
    that was lost on the way is none: nobody could know."""
    answered = _first_answers(ledger)
    return sum(
        1
        for bill in ledger.bills
        if bill.mark is not None and bill.arrived > answered.get(bill.mark, bill.arrived)
    )


def drained(ledger: Ledger) -> int:
    return len(_first_answers(ledger))


def _first_answers(ledger: Ledger) -> dict[str, float]:
    """By job, when it first got its answer."""
    found: dict[str, float] = {}
    for bill in ledger.bills:
        if bill.mark is not None and bill.answered:
            found[bill.mark] = min(bill.at, found.get(bill.mark, bill.at))
    return found
