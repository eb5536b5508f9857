"""Drops what has been kept long enough, a thousand at a time so that no trip is a long one."""

from __future__ import annotations

import math
from collections.abc import Callable

from tidemill.contract.store import Store
from tidemill.core.queues import HOUR
from tidemill.telemetry.events import JobsDroppedEarly
from tidemill.worker.bookkeeper import Bookkeeper
from tidemill.worker.emitter import Emitter

AT_ONCE = 1000
SHORTEST_REST = 1.0


class Pruner:
    """The bookkeeper adds up history before it is dropped. `time` is the event loop's."""

    def __init__(
        self, store: Store, bookkeeper: Bookkeeper, emitter: Emitter, time: Callable[[], float]
    ) -> None:
        self._store, self._bookkeeper, self._emitter, self._time = store, bookkeeper, emitter, time
        self._warned: dict[str, float] = {}
        self._began, self._dropped = time(), 0
        self._rest: float | None = None

    async def prune(self) -> bool:
        await self._bookkeeper.keep()
        pruned = await self._store.prune(AT_ONCE)
        for queue, jobs in pruned.early.items():
            if self._time() - self._warned.get(queue, -math.inf) >= HOUR:
                await self._warn(queue, jobs)
        self._dropped += pruned.pruned
        if not pruned.more:
            self._pace()
        return pruned.more

    def rest(self) -> float | None:
        """Seconds until about a full round can be dropped again. Where many jobs end, a short round a second
        replaces long bursts, which delay claims and let the store grow in between."""
        return self._rest

    def _pace(self) -> None:
        now = self._time()
        passed, dropped = now - self._began, self._dropped
        self._rest = max(SHORTEST_REST, passed * AT_ONCE / dropped) if dropped else None
        self._began, self._dropped = now, 0

    async def _warn(self, queue: str, jobs: int) -> None:
        """Once an hour and queue in the whole fleet: history shows whether another worker dropped before."""
        is_first = queue not in self._warned
        self._warned[queue] = self._time()
        hour_ago = (await self._store.read_clock()).wall - HOUR
        in_last_hour = sum(minute.dropped_early for minute in await self._store.history(queue, hour_ago))
        if not (is_first and in_last_hour > jobs):
            self._emitter.worker_event(JobsDroppedEarly, queue=queue, jobs=in_last_hour)
