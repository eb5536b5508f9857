"""What to ask the store for: how many jobs, of which queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from tidemill.contract.store import Store
from tidemill.core.claims import Claimed, ClaimRequest
from tidemill.core.weights import Weights
from tidemill.errors import StoreError
from tidemill.tasks.definition import TaskDefinition
from tidemill.worker.hands import Hands
from tidemill.worker.options import WorkerOptions
from tidemill.worker.pace import Pace

LOOK_AT_SETTINGS_EVERY = 10.0


class Producer:
    """Claims ahead of free slots only when none of the worker's queues is limited and none has tasks
    with pools: a job that waits in a buffer would take a place, or units, from one that could run
    elsewhere. One such queue is enough, because a claim fills what one queue leaves from the next."""

    def __init__(
        self,
        options: WorkerOptions,
        worker: str,
        hands: Hands,
        *,
        pace: Pace,
        tasks: Mapping[str, TaskDefinition],
    ) -> None:
        self._options, self._worker = options, worker
        self._hands, self._pace = hands, pace
        self._weights = Weights(options.queues, strict=options.strict)
        self._tasks = tasks
        self._limited = True
        self._met_pools = False
        self._number = 0

    @property
    def room(self) -> int:
        return self._options.concurrency + self._ahead - self._hands.busy

    @property
    def is_ahead(self) -> bool:
        """Jobs are claimed before there are slots for them."""
        return self._ahead > 0

    @property
    def _ahead(self) -> int:
        return 0 if self._limited else self._pace.ahead

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

    def served(self, jobs: Iterable[Claimed]) -> int:
        """How many slots they take: those of one call take one together."""
        queues = [job.queue for job in jobs if not job.call or job.call == job.id]
        self._weights.served(queues)
        return len(queues)

    def met_pools(self) -> None:
        """A job with pools came, on whatever queue: more of them may."""
        self._limited = self._met_pools = True

    def serve(self, queue: str) -> None:
        """One more queue than the worker was told of."""
        self._weights.add(queue)

    async def watch_settings(self, store: Store) -> None:
        """Notice within seconds when a limit is set; until then the store still keeps to it."""
        while True:
            try:
                infos = await store.queues()
                settings = [info.settings for info in infos if info.name in self._options.queues]
                self._limited = self._has_pools or any(
                    s.concurrency is not None or s.key_concurrency is not None for s in settings
                )
            except StoreError:
                self._limited = True  # the pump reports outages; claiming less is always right
            await asyncio.sleep(LOOK_AT_SETTINGS_EVERY)

    @property
    def _has_pools(self) -> bool:
        return self._met_pools or any(
            task.pools and task.queue in self._options.queues for task in list(self._tasks.values())
        )
