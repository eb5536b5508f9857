"""The result of a run, computed from the provider's request log."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.testing.simulator import RequestLog


@dataclass(frozen=True)
class QuotaResult:
    """One result. `seconds` is the time from the first call's arrival to the last job's answer, in the
    provider's time.

    `seconds` is None if a job was not answered. `best` is T_opt."""

    jobs: int
    drained: int
    refused: int
    paid_twice: int
    seconds: float | None
    best: float

    @property
    def ratio(self) -> float | None:
        return None if self.seconds is None else self.seconds / self.best


def compute_result(request_log: RequestLog, jobs: int, best: float) -> QuotaResult:
    answered = _first_answers(request_log)
    drained = len(answered)
    began = min((arrival.at for arrival in request_log.arrivals), default=0.0)
    complete = drained == jobs and jobs > 0
    return QuotaResult(
        jobs=jobs,
        drained=drained,
        refused=len(request_log.refused),
        paid_twice=paid_twice(request_log),
        seconds=max(answered.values()) - began if complete else None,
        best=best,
    )


def paid_twice(request_log: RequestLog) -> int:
    """Returns the number of billed calls for jobs that already had their answer.

    A repeated call after a lost answer does not count: the caller could not know that it was billed."""
    answered = _first_answers(request_log)
    return sum(
        1
        for bill in request_log.bills
        if bill.mark is not None and bill.arrived > answered.get(bill.mark, bill.arrived)
    )


def drained(request_log: RequestLog) -> int:
    return len(_first_answers(request_log))


def _first_answers(request_log: RequestLog) -> dict[str, float]:
    """Returns the time of each job's first answer."""
    found: dict[str, float] = {}
    for bill in request_log.bills:
        if bill.mark is not None and bill.answered:
            found[bill.mark] = min(bill.at, found.get(bill.mark, bill.at))
    return found
