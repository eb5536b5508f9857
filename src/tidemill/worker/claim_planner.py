"""Decides how many jobs a worker claims, from which queues, and whether it claims jobs before slots are free
for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob, ClaimRequest, QueueWeights
from tidemill.errors import StoreError
from tidemill.tasks.definition import TaskDefinition
from tidemill.worker.in_flight import Slots
from tidemill.worker.options import WorkerOptions

MAX_JOBS_AHEAD = 1000
AHEAD_SECONDS = 0.02
SHORT_JOB_SECONDS = 0.05
_SMOOTHING_FACTOR = 0.3


class ClaimAhead:
    """Estimates how many jobs to claim before a slot is free for them.

    `run_seconds`, `run_count`: sum and number of the run times since the last round trip."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._mean: float | None = None
        self._trip = 0.0
        self.run_seconds = 0.0
        self.run_count = 0

    def add_round_trip(self, seconds: float) -> None:
        self._trip += _SMOOTHING_FACTOR * (seconds - self._trip)
        if not self.run_count:
            return
        mean = self.run_seconds / self.run_count
        self.run_seconds, self.run_count = 0.0, 0
        self._mean = mean if self._mean is None else self._mean + _SMOOTHING_FACTOR * (mean - self._mean)

    def stalled(self) -> None:
        """Forgets the mean run time. Until a new mean is known, the worker claims only as many jobs as slots
        are free."""
        self._mean = None

    @property
    def ahead(self) -> int:
        if self._mean is None or self._mean >= SHORT_JOB_SECONDS:
            return 0
        horizon = max(AHEAD_SECONDS, 2 * self._trip)
        # A job never takes less than a microsecond, but a coarse loop clock may show 0.
        return min(MAX_JOBS_AHEAD, int(self._concurrency * horizon / max(self._mean, 1e-6)))


SETTINGS_REFRESH_SECONDS = 10.0


class ClaimPlanner:
    """Builds the claim requests of a worker.

    To claim ahead means to claim jobs before slots are free for them. A worker claims ahead only if none of
    its queues has a concurrency limit and none of its tasks uses pools."""

    def __init__(
        self,
        options: WorkerOptions,
        worker: str,
        slots: Slots,
        *,
        claim_ahead: ClaimAhead,
        tasks: Mapping[str, TaskDefinition],
    ) -> None:
        self._options, self._worker = options, worker
        self._slots, self._claim_ahead = slots, claim_ahead
        self._weights = QueueWeights(options.queues, strict=options.strict)
        self._tasks = tasks
        self.queues = tuple(options.queues)
        self._limited = True
        self._has_met_pools = False
        self._number = 0

    @property
    def room(self) -> int:
        return self._slots.concurrency + self._ahead - self._slots.busy

    @property
    def is_ahead(self) -> bool:
        """True if this worker currently claims jobs before slots are free for them."""
        return self._ahead > 0

    @property
    def _ahead(self) -> int:
        # A job that waits here would use a limit or units that another worker needs.
        return 0 if self._limited else self._claim_ahead.ahead

    def request(self) -> ClaimRequest:
        self._number += 1
        room = self.room
        return ClaimRequest(
            worker=self._worker,
            number=self._number,
            shares=self._weights.shares(room),
            limit=room,
            lease=self._options.lease,
        )

    def served(self, jobs: Iterable[ClaimedJob]) -> int:
        """Returns how many slots the claimed jobs take, and counts them for the fair share of each queue. The
        jobs of one batch take one slot together."""
        queues = [job.queue for job in jobs if not job.call or job.call == job.id]
        self._weights.served(queues)
        return len(queues)

    def note_pools(self) -> None:
        """Records that this worker has claimed a job that uses pools. From now on the worker claims no jobs
        before slots are free for them."""
        self._limited = self._has_met_pools = True

    def serve(self, queue: str) -> None:
        """Adds a queue to the queues from which this worker claims."""
        if queue not in self.queues:
            self._weights.add(queue)
            self.queues = (*self.queues, queue)

    async def watch_settings(self, store: Store) -> None:
        """Reads the queue settings every 10 seconds, until cancelled. While a queue has a concurrency limit,
        the worker claims no jobs before slots are free."""
        while True:
            try:
                infos = await store.queues()
                settings = [info.settings for info in infos if info.name in self._options.queues]
                self._limited = self._has_pools or any(
                    s.concurrency is not None or s.key_concurrency is not None for s in settings
                )
            except StoreError:
                self._limited = True  # the dispatcher reports outages; claiming less is always safe
            await asyncio.sleep(SETTINGS_REFRESH_SECONDS)

    @property
    def _has_pools(self) -> bool:
        return self._has_met_pools or any(
            task.pools and task.queue in self._options.queues for task in list(self._tasks.values())
        )
