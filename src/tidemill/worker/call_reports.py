"""Reports to a pool while an attempt runs: requests that leave late, requests beyond the reservation, and
refusals after which the client tries again by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill.core.claims import Claimed
from tidemill.core.departures import Departure
from tidemill.core.needs import Need
from tidemill.core.spending import Observation
from tidemill.errors import StoreError
from tidemill.telemetry.events import UnreservedCall

if TYPE_CHECKING:
    from tidemill.worker.spending import Metering

T = TypeVar("T")
STORE_PATIENCE = 1.0
"""Seconds that a request waits for the store. It leaves then in any case: it is not the store's to stop."""
RETRY_DELAY = 0.25
"""Seconds until a refusal is reported. SDKs wait at least 0.5 s before they try again. An attempt that ends
with the refusal is settled long before, and its settlement reports the refusal."""


class Reports:
    """Of one attempt. Hooks tell from any thread; the store is asked on the worker's loop."""

    def __init__(self, metering: Metering, job: Claimed) -> None:
        self._metering, self._job = metering, job
        self._is_over = False
        self._pending: dict[tuple[str, str | None], Observation] = {}
        self._told: set[tuple[str, str | None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def depart(self, need: Need, departure: Departure) -> None:
        loop = self._metering.loop
        if asyncio.get_running_loop() is loop:
            await self._depart(need, departure)
        else:
            asked = asyncio.run_coroutine_threadsafe(self._depart(need, departure), loop)
            await asyncio.wrap_future(asked)

    def depart_sync(self, need: Need, departure: Departure) -> None:
        if threading.get_ident() == self._metering.thread:
            self.departed(need, departure)  # a client that blocks the loop: nothing can be awaited here
        else:
            asyncio.run_coroutine_threadsafe(self._depart(need, departure), self._metering.loop).result()

    def departed(self, need: Need, departure: Departure) -> None:
        self._soon(lambda: self._start(self._depart(need, departure)))

    def refused(self, seen: Observation) -> None:
        place = (seen.pool, seen.key)
        self._pending[place] = seen
        self._told.discard(place)
        self._soon(lambda: self._metering.loop.call_later(RETRY_DELAY, self._tell, place))

    def was_told(self, place: tuple[str, str | None]) -> bool:
        return place in self._told

    def end(self) -> None:
        self._is_over = True

    def _tell(self, place: tuple[str, str | None]) -> None:
        seen = None if self._is_over else self._pending.pop(place, None)
        if seen is not None:
            self._told.add(place)
            self._start(self._observe(seen))

    async def _observe(self, seen: Observation) -> None:
        news = await _patiently(self._metering.store.observe([seen]))
        self._metering.tell_pools(news or ())

    async def _depart(self, need: Need, departure: Departure) -> None:
        if self._is_over:
            return  # a task that the handler left behind: its claim is no longer current
        if departure is Departure.EXTRA:
            self._warn(need)
        job, store = self._job, self._metering.store
        await _patiently(store.reserve(job.id, job.fence, job.claim, need, departure))

    def _warn(self, need: Need) -> None:
        """Once for each pool and worker: it is the program that has to change."""
        told = self._metering.extra_told
        if need.pool not in told:
            told.add(need.pool)
            self._metering.tell(UnreservedCall, self._job, pool=need.pool, key=need.key)

    def _soon(self, call: Any) -> None:
        self._metering.loop.call_soon_threadsafe(call)

    def _start(self, report: Any) -> None:
        task = self._metering.loop.create_task(report)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _patiently(asked: Awaitable[T]) -> T | None:
    """A store that cannot be reached is not the call's fault: the settlement tells it what was used."""
    try:
        async with asyncio.timeout(STORE_PATIENCE):
            return await asked
    except (StoreError, TimeoutError):
        return None
