"""Notes how long attempts ran, and which could not start, once their outcomes are in the store."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from tidemill.tallies.instruments import Counter, Histogram, Instruments
from tidemill.tallies.job_times import JOB_SECONDS, MISSED_STARTS
from tidemill.worker.attempt import Attempt
from tidemill.worker.pace import Pace


class Times:
    """A trip's worth at once, for this is done per job: 85 ns in a batch of 500, of which finding the bucket
    of each would double. Those of one task mostly come together."""

    def __init__(self, instruments: Instruments, pace: Pace) -> None:
        self._seconds, self._pace = instruments.own(Histogram(JOB_SECONDS)), pace
        self._missed = instruments.own(Counter(MISSED_STARTS))

    def missed(self, attempt: Attempt) -> None:
        """Its handler could not start in time."""
        self._missed.add(queue=attempt.job.queue, task=attempt.job.task)

    def note(self, ran: Sequence[Attempt]) -> None:
        queue = task = None
        took: list[float] = []
        for attempt in ran:
            job = attempt.job
            if job.task != task or job.queue != queue:
                if queue is not None and task is not None:
                    self._add(queue, task, took)
                queue, task, took = job.queue, job.task, []
            took.append(attempt.ended - attempt.started)
        if queue is not None and task is not None:
            self._add(queue, task, took)

    def _add(self, queue: str, task: str, took: list[float]) -> None:
        histogram, spent, below = self._seconds, sum(took), 0
        self._pace.spent += spent
        self._pace.ended += len(took)
        took.sort()
        with histogram.lock:
            amounts = histogram.amounts((queue, task), histogram.fresh)
            amounts[-1] += spent
            for place, bound in enumerate(JOB_SECONDS.bounds):
                until = bisect_right(took, bound, below)
                amounts[place] += until - below
                below = until
                if below == len(took):
                    return
            amounts[-2] += len(took) - below
