"""Records the requests to providers that a client hook sees during an attempt, and their usage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any, Protocol

from tidemill.core.feedback import Observation, PoolUsage, Refusal
from tidemill.core.late_calls import EXTRA_REQUEST_UNITS, Departure
from tidemill.core.needs import IMPLIED, Need, Units
from tidemill.core.windows import SEND_SHARE

PoolKey = tuple[str, str | None]
"""A pool, and the key of a keyed pool."""
MAX_CORRECTABLE_ANSWERS = 100
"""The number of responses in one attempt that `ctx.used` may still correct."""


class AnswerReader(Protocol):
    """A function that reads a response and reports its limits to the pool. It returns the used units, and the
    refusal if there is one."""

    def __call__(self, need: Need, source: Any) -> tuple[Units, Refusal | None]: ...


LAST_CALL: ContextVar[MeteredCall | None] = ContextVar("tidemill_last_call", default=None)
"""The call whose response this code received last."""


class MeteredCalls:
    """The requests that client hooks saw in one attempt. `_reserved` has, per pool and key, the number of
    reserved requests that are not sent yet."""

    def __init__(self, sink: UsageSink, read: AnswerReader) -> None:
        self.sink, self.read = sink, read
        self._numbers = count()
        self._lock = threading.Lock()
        self._reserved: dict[PoolKey, float] = {}
        self._late_at: dict[int, float] = {}  # by the id of a need, which `_needs` keeps from being reused
        self._needs: list[Need] = []
        self._unanswered: dict[MeteredCall, None] = {}
        self._correctable: dict[
            MeteredCall, None
        ] = {}  # responses that the handler has not reported, the latest last

    def reserved(self, need: Need, late_at: float) -> None:
        """Records that the units of `need` are reserved. A request that is sent after `late_at` is late."""
        pool_key = (need.pool, need.key)
        with self._lock:
            self._reserved[pool_key] = self._reserved.get(pool_key, 0.0) + need.units.get("requests", 1.0)
            self._late_at[id(need)] = late_at
            self._needs.append(need)

    def begin(self, need: Need, jitter: float) -> MeteredCall:
        call = MeteredCall(self, need, jitter)
        LAST_CALL.set(call)
        return call

    def departure(self, call: MeteredCall, *, first: bool) -> Departure | None:
        """Returns how the pool has to count this request. EXTRA: no reservation covers it. LATE: it is sent
        later than its reservation allows. None: its reservation covers it.

        `first`: True for the first request of the call, False for a retry by the client."""
        need, now = call.need, self.sink.now()
        if first and self.is_extra(call):
            call.is_extra, call.late_at = True, now + SEND_SHARE * call.jitter
            return Departure.EXTRA
        with self._lock:
            if now <= (call.late_at if call.is_extra else self._late_at.get(id(need), call.late_at)):
                return None
            call.late_at = self._late_at[id(need)] = now + SEND_SHARE * call.jitter
            return Departure.LATE

    def report_unanswered(self) -> None:
        """Reports the reserved units of every request that was sent and got no answer, because the provider
        may have counted it."""
        with self._lock:
            calls = list(self._unanswered)
        for call in calls:
            call.units = {"requests": 1.0, **call.need.units}
            call.report()

    def is_extra(self, call: MeteredCall) -> bool:
        """Counts one more request of the call. Returns True if no reservation covers it."""
        with self._lock:
            self._unanswered[call] = None
            remaining = self._reserved.get(call.pool_key, 0.0) - 1.0
            self._reserved[call.pool_key] = max(remaining, 0.0)
        return remaining < 0

    def number(self) -> int:
        return next(self._numbers)

    def add_answer(self, call: MeteredCall) -> None:
        with self._lock:
            self._unanswered.pop(call, None)
            if not call.by_hand:
                self._correctable[call] = None
                if len(self._correctable) > MAX_CORRECTABLE_ANSWERS:
                    del self._correctable[next(iter(self._correctable))]

    def find_reported_call(self, pool_key: PoolKey) -> MeteredCall | None:
        """Returns the call that a `ctx.used` reports; None if all calls of the pool are reported.

        It is the last call of this asyncio task or thread, else the newest call without a report."""
        last = LAST_CALL.get()
        with self._lock:
            candidates = (
                (last, *reversed(self._correctable))
                if last in self._correctable
                else reversed(self._correctable)
            )
            found = next((call for call in candidates if call and call.pool_key == pool_key), None)
            if found is not None:
                del self._correctable[found]
        return found


class MeteredCall:
    """One call that a client hook sees; implements `hooks.watched_call.WatchedCall`.

    - `units`: the units that the response reports.
    - `by_hand`: the units that `ctx.used` reports; they win over `units`."""

    def __init__(self, calls: MeteredCalls, need: Need, jitter: float) -> None:
        self._calls, self.need, self.jitter = calls, need, jitter
        self.pool_key: PoolKey = (need.pool, need.key)
        self.late_at = float("inf")
        self.is_extra = False
        self.units: Units = {}
        self.by_hand: Units = {}
        self._has_left = False
        self._number: int | None = None

    async def leaves(self) -> None:
        if (departure := self._next_departure()) is not None:
            with self._without_raising():
                await self._calls.sink.depart(self._need_of(departure), departure)

    def before_send_sync(self) -> None:
        if (departure := self._next_departure()) is not None:
            with self._without_raising():
                self._calls.sink.depart_sync(self._need_of(departure), departure)

    def left(self, requests: int) -> None:
        """Counts `requests` requests that were sent at an unknown time. Does nothing if the hook saw when
        they were sent."""
        if self._has_left:
            return
        self._has_left = True
        # Never LATE: this may run 60 s after the requests were sent.
        for _ in range(requests):
            if self._calls.is_extra(self):
                with self._without_raising():
                    self._calls.sink.departed(self._need_of(Departure.EXTRA), Departure.EXTRA)

    def answered(self, response: Any) -> None:
        with self._without_raising():
            self._count(*self._calls.read(self.need, response))

    def _count(self, units: Units, refusal: Refusal | None) -> None:
        if refusal is not None and not refusal.broke_off:
            # A provider does no work for a refused call, so all units except the request are returned.
            done = {unit: 0.0 for unit in self.need.units if unit not in IMPLIED}
            units = {**done, **units}
        self.units = units
        self.report()
        self._calls.add_answer(self)

    def correct(self, by_hand: Units) -> None:
        self.by_hand = {**self.by_hand, **by_hand}
        self.report()

    def report(self) -> None:
        """Reports the usage of this call. All reports of a call have the same number, so a later report
        replaces an earlier one."""
        if self._number is None:
            self._number = self._calls.number()
        units = {**self.units, **self.by_hand}
        self._calls.sink.used(PoolUsage(pool=self.need.pool, key=self.need.key, units=units), self._number)

    @contextmanager
    def _without_raising(self) -> Iterator[None]:
        """Context manager that turns errors of its block into warnings, because a paid call must not fail
        because of a hook."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - reported as a warning
            self._calls.sink.warn(f"watch: {type(error).__name__}: {error}"[:500])

    def _next_departure(self) -> Departure | None:
        first, self._has_left = not self._has_left, True
        return self._calls.departure(self, first=first)

    def _need_of(self, departure: Departure) -> Need:
        if departure is Departure.LATE and not self.is_extra:
            return self.need
        return Need(self.need.pool, self.need.key, EXTRA_REQUEST_UNITS)


class UsageSink(Protocol):
    """Receives the usage of an attempt, from any thread. In a child process it is the pipe to the worker."""

    def used(self, usage: PoolUsage, number: int | None = None) -> None:
        """Adds usage. If usage with the same `number` was added before, the new usage replaces it."""
        ...

    def observe(self, seen: Observation, *, watched: bool = False) -> None:
        """Reports the limits or the refusal of a response. `watched=True`: a client hook saw the response,
        and the client may retry by itself."""
        ...

    def warn(self, problem: str) -> None:
        """Logs a warning about a report without effect, or about a classifier that failed."""
        ...

    def wall(self) -> float:
        """Returns the store's wall time, estimated from its last known value."""
        ...

    def left(self) -> float:
        """Returns the seconds until the attempt's timeout."""
        ...

    async def reserve(self, need: Need) -> float | None:
        """Reserves units for this claim. Returns None if they are reserved, otherwise the seconds to wait
        (see `contract.pools.PoolStore.reserve`)."""
        ...

    def now(self) -> float:
        """Returns monotonic seconds."""
        ...

    def late_at(self) -> float:
        """Returns the time, by `now`, after which a request is too late for the units that the claim
        reserved."""
        ...

    async def depart(self, need: Need, departure: Departure) -> None:
        """Reports an extra or late request before it is sent. Returns when the pool has the report, or after
        a short timeout."""
        ...

    def depart_sync(self, need: Need, departure: Departure) -> None: ...

    def departed(self, need: Need, departure: Departure) -> None:
        """Reports an extra or late request that was already sent. Returns at once."""
        ...
