"""Sends reports to pools while an attempt still runs: about late calls, calls without a reservation, and
refusals that an HTTP client retries by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill.core.claims import ClaimedJob
from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.core.late_calls import Departure
from tidemill.core.needs import Need
from tidemill.errors import StoreError
from tidemill.telemetry.events import UnreservedCall

if TYPE_CHECKING:
    from tidemill.worker.usage import AttemptEnvironment


T = TypeVar("T")
PoolKey = tuple[str, str | None]
"""A pool, and the key of a keyed pool."""
STORE_TIMEOUT_SECONDS = 1.0
"""Seconds that a call waits for the store. It starts then in any case: the store cannot stop it."""
REFUSAL_REPORT_DELAY_SECONDS = 0.25
"""Seconds until a refusal is reported. SDKs wait at least 0.5 s before they retry. An attempt that ends
with the refusal is settled long before, and its settlement reports the refusal."""


class UsageReports:
    """Sends reports about the calls of one attempt to its pools, while the attempt still runs. Any thread may
    call it."""

    def __init__(self, environment: AttemptEnvironment, job: ClaimedJob) -> None:
        self._environment, self._job = environment, job
        self._is_over = False
        self._pending_refusals: dict[PoolKey, Observation] = {}  # the last refusal that a hook saw, per pool
        self._due: set[PoolKey] = (
            set()
        )  # pools whose refusal will be reported unless a settlement takes it over
        self._reported: dict[PoolKey, Refusal] = {}
        self._lock = threading.Lock()  # a refusal is in one of them at a time
        self._tasks: set[asyncio.Task[None]] = set()

    async def depart(self, need: Need, departure: Departure) -> None:
        loop = self._environment.loop
        if asyncio.get_running_loop() is loop:
            await self._depart(need, departure)
        else:
            future = asyncio.run_coroutine_threadsafe(self._depart(need, departure), loop)
            await asyncio.wrap_future(future)

    def depart_sync(self, need: Need, departure: Departure) -> None:
        if threading.get_ident() == self._environment.thread:
            self.departed(need, departure)  # a client that blocks the loop: nothing can be awaited here
        else:
            asyncio.run_coroutine_threadsafe(self._depart(need, departure), self._environment.loop).result()

    def departed(self, need: Need, departure: Departure) -> None:
        self._soon(lambda: self._start(self._depart(need, departure)))

    def refused(self, seen: Observation) -> None:
        pool_key = (seen.pool, seen.key)
        with self._lock:
            self._reported.pop(pool_key, None)
            self._pending_refusals[pool_key] = seen
            self._due.add(pool_key)
        self._soon(
            lambda: self._environment.loop.call_later(REFUSAL_REPORT_DELAY_SECONDS, self._report, pool_key)
        )

    def knows(self, seen: Observation) -> bool:
        """True if an HTTP client hook has already seen the refusal in `seen`."""
        return self.was_reported(seen) or _is_same_refusal(
            self._pending_refusals.get(seen.account_key), seen.refusal
        )

    def was_reported(self, seen: Observation) -> bool:
        """True if the refusal in `seen` was already reported to the pool. The caller must not report it
        again."""
        known = self._reported.get(seen.account_key)
        return known is not None and _is_same_refusal(seen, known)

    def take_unreported(self) -> dict[tuple[PoolKey, bool], Observation]:
        """Returns the refusals that this object has not reported yet. The settlement reports them, so that
        the pool gets each refusal once."""
        with self._lock:
            self._due.clear()
            return {(pool_key, True): seen for pool_key, seen in self._pending_refusals.items()}

    def end(self) -> None:
        self._is_over = True

    def _report(self, pool_key: PoolKey) -> None:
        with self._lock:
            if self._is_over or pool_key not in self._due:
                return
            self._due.discard(pool_key)
            seen = self._pending_refusals.pop(pool_key)
            if seen.refusal is not None:
                self._reported[pool_key] = seen.refusal
        self._start(self._observe(seen))

    async def _observe(self, seen: Observation) -> None:
        changes = await _call_with_timeout(self._environment.store.observe([seen]))
        if changes is None:
            with self._lock:  # the settlement has to report it, unless another refusal came
                if self._reported.get(seen.account_key, ...) is seen.refusal:
                    del self._reported[seen.account_key]
                    self._pending_refusals[seen.account_key] = seen
            return
        self._environment.emit_pool_changes(changes)

    async def _depart(self, need: Need, departure: Departure) -> None:
        if self._is_over:
            return  # a task that the handler left behind: its claim is no longer current
        if departure is Departure.EXTRA:
            self._warn(need)
        job, store = self._job, self._environment.store
        await _call_with_timeout(store.reserve(job.id, job.fence, job.claim, need, departure))

    def _warn(self, need: Need) -> None:
        """Emits a warning event about a call without a reservation, once per pool and worker."""
        known = self._environment.warned_pools
        if need.pool not in known:
            known.add(need.pool)
            self._environment.emit(UnreservedCall, self._job, pool=need.pool, key=need.key)

    def _soon(self, call: Any) -> None:
        self._environment.loop.call_soon_threadsafe(call)

    def _start(self, report: Any) -> None:
        task = self._environment.loop.create_task(report)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_same_refusal(seen: Observation | None, refusal: Refusal | None) -> bool:
    """True if both refusals have the same reason and status. Their texts may differ."""
    known = None if seen is None else seen.refusal
    return known is not None and refusal is not None and _refusal_kind(known) == _refusal_kind(refusal)


def _refusal_kind(refusal: Refusal) -> tuple[Reason, int | None]:
    return refusal.reason, refusal.status


async def _call_with_timeout(call: Awaitable[T]) -> T | None:
    """Awaits a store request for at most 1 second and returns its result. Returns None if the store cannot be
    reached, because that must not fail the provider call."""
    try:
        async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
            return await call
    except (StoreError, TimeoutError):
        return None
