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
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.spending import Observation
from tidemill.errors import StoreError
from tidemill.telemetry.events import UnreservedCall

if TYPE_CHECKING:
    from tidemill.worker.spending import Metering

T = TypeVar("T")
Place = tuple[str, str | None]
"""A pool, and the key of a keyed one."""
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
        self._untold: dict[Place, Observation] = {}  # refusals of hooks, of each pool the last one
        self._due: set[Place] = set()  # those of them that are reported unless a settlement takes them over
        self._told: dict[Place, Refusal] = {}
        self._lock = threading.Lock()  # a refusal is in one of them at a time
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
        with self._lock:
            self._told.pop(place, None)
            self._untold[place] = seen
            self._due.add(place)
        self._soon(lambda: self._metering.loop.call_later(RETRY_DELAY, self._tell, place))

    def knows(self, seen: Observation) -> bool:
        """Whether a hook saw this refusal: then it is reported without the attempt."""
        return self.was_told(seen) or _is_same(self._untold.get(seen.place), seen.refusal)

    def was_told(self, seen: Observation) -> bool:
        """Whether the pool has heard of this refusal. A handler that raises it later tells it again."""
        told = self._told.get(seen.place)
        return told is not None and _is_same(seen, told)

    def take_over(self) -> dict[tuple[Place, bool], Observation]:
        """The refusals that a settlement has to tell. They are no longer reported here, or the pool would
        hear of them twice; should the settlement fail, the next one tells them."""
        with self._lock:
            self._due.clear()
            return {(place, True): seen for place, seen in self._untold.items()}

    def end(self) -> None:
        self._is_over = True

    def _tell(self, place: Place) -> None:
        with self._lock:
            if self._is_over or place not in self._due:
                return
            self._due.discard(place)
            seen = self._untold.pop(place)
            if seen.refusal is not None:
                self._told[place] = seen.refusal
        self._start(self._observe(seen))

    async def _observe(self, seen: Observation) -> None:
        news = await _patiently(self._metering.store.observe([seen]))
        if news is None:
            with self._lock:  # the settlement has to tell it, unless another refusal has come
                if self._told.get(seen.place, ...) is seen.refusal:
                    del self._told[seen.place]
                    self._untold[seen.place] = seen
            return
        self._metering.tell_pools(news)

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


def _is_same(seen: Observation | None, refusal: Refusal | None) -> bool:
    """An exception that some clients make of an answer has fewer words than the answer."""
    known = None if seen is None else seen.refusal
    return known is not None and refusal is not None and _kind_of(known) == _kind_of(refusal)


def _kind_of(refusal: Refusal) -> tuple[Reason, int | None]:
    return refusal.reason, refusal.status


async def _patiently(asked: Awaitable[T]) -> T | None:
    """A store that cannot be reached is not the call's fault: the settlement tells it what was used."""
    try:
        async with asyncio.timeout(STORE_PATIENCE):
            return await asked
    except (StoreError, TimeoutError):
        return None
