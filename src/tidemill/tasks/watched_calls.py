"""The requests that hooks see in one attempt, and their effect on the attempt's pools.

A request leaves: when its units are too old they are entered again, and when nothing was reserved for it, it
is booked. Both happen before it leaves. An answer arrives: what it used is counted, once, also when the
handler tells it again by `ctx.used`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from tidemill.core.departures import ONE_REQUEST, Departure
from tidemill.core.needs import Need
from tidemill.core.spending import Usage
from tidemill.core.units import IMPLIED, Units

if TYPE_CHECKING:
    from tidemill.core.refusals import Refusal

Place = tuple[str, str | None]
"""A pool, and the key of a keyed one."""
MAX_UNTOLD = 100
"""Answers of one attempt that `ctx.used` may still correct."""
TO_LEAVE = 0.5
"""The share of the jitter after which a request that leaves is late. The rest is for its way."""


class Departures(Protocol):
    """The part of `metering.Tally` that is about requests."""

    def used(self, usage: Usage, number: int) -> None: ...
    def warned(self, problem: str) -> None: ...
    def now(self) -> float: ...
    def late_at(self) -> float: ...
    async def depart(self, need: Need, departure: Departure) -> None: ...
    def depart_sync(self, need: Need, departure: Departure) -> None: ...
    def departed(self, need: Need, departure: Departure) -> None: ...


class Reader(Protocol):
    """Reads an answer for a pool: what it used, and whether it was refused. Tells the pool what it says."""

    def __call__(self, need: Need, source: Any) -> tuple[Units, Refusal | None]: ...


LAST: ContextVar[Call | None] = ContextVar("tidemill_last_call", default=None)
"""The call whose answer this code has just received."""


class Calls:
    """Of one attempt. `reserved` counts by pool the requests that may still leave without being extra."""

    def __init__(self, tally: Departures, read: Reader) -> None:
        self.tally, self.read = tally, read
        self._numbers = count()
        self._lock = threading.Lock()
        self._reserved: dict[Place, float] = {}
        self._late_at: dict[int, float] = {}  # by the id of a need, which `_needs` keeps from being reused
        self._needs: list[Need] = []
        self._untold: dict[Call, None] = {}  # answers that the handler has not spoken of, the last one last

    def reserved(self, need: Need, late_at: float) -> None:
        """Units were taken for a call of that cost. From `late_at` on its request leaves late."""
        place = (need.pool, need.key)
        with self._lock:
            self._reserved[place] = self._reserved.get(place, 0.0) + need.units.get("requests", 1.0)
            self._late_at[id(need)] = late_at
            self._needs.append(need)

    def begin(self, need: Need, jitter: float) -> Call:
        call = Call(self, need, jitter)
        LAST.set(call)
        return call

    def departure(self, call: Call, *, first: bool) -> Departure | None:
        """The report that the request of this call needs before it leaves, if it needs one."""
        need, now = call.need, self.tally.now()
        with self._lock:
            if first:
                left = self._reserved.get(call.place, 0.0) - 1.0
                self._reserved[call.place] = max(left, 0.0)
                if left < 0:
                    call.is_extra, call.late_at = True, now + TO_LEAVE * call.jitter
                    return Departure.EXTRA
            if now <= (call.late_at if call.is_extra else self._late_at.get(id(need), call.late_at)):
                return None
            call.late_at = self._late_at[id(need)] = now + TO_LEAVE * call.jitter
            return Departure.LATE

    def number(self) -> int:
        return next(self._numbers)

    def arrived(self, call: Call) -> None:
        with self._lock:
            if not call.by_hand:
                self._untold[call] = None
                if len(self._untold) > MAX_UNTOLD:
                    del self._untold[next(iter(self._untold))]

    def same_as(self, place: Place) -> Call | None:
        """The call that the handler speaks of now: the one whose answer it has just received, else the last
        one of that pool that it has not spoken of yet."""
        last = LAST.get()
        with self._lock:
            candidates = (last, *reversed(self._untold)) if last in self._untold else reversed(self._untold)
            found = next((call for call in candidates if call and call.place == place), None)
            if found is not None:
                del self._untold[found]
        return found


class Call:
    """A `hooks.calls.WatchedCall`. `units` come from its answer, `by_hand` from the handler; where both name
    a unit, the handler's amount counts."""

    def __init__(self, calls: Calls, need: Need, jitter: float) -> None:
        self._calls, self.need, self.jitter = calls, need, jitter
        self.place: Place = (need.pool, need.key)
        self.late_at = float("inf")
        self.is_extra = False
        self.units: Units = {}
        self.by_hand: Units = {}
        self._has_left = False
        self._number: int | None = None

    async def leaves(self) -> None:
        if (departure := self._next_departure()) is not None:
            with self._without_raising():
                await self._calls.tally.depart(self._need_of(departure), departure)

    def leaves_sync(self) -> None:
        if (departure := self._next_departure()) is not None:
            with self._without_raising():
                self._calls.tally.depart_sync(self._need_of(departure), departure)

    def left(self, requests: int) -> None:
        """The late ones among them are seen too late to be moved before, and are moved now."""
        for _ in range(requests if not self._has_left else 0):
            self._has_left = False
            if (departure := self._next_departure()) is not None:
                with self._without_raising():
                    self._calls.tally.departed(self._need_of(departure), departure)

    def answered(self, response: Any) -> None:
        with self._without_raising():
            self._count(*self._calls.read(self.need, response))

    def _count(self, units: Units, refusal: Refusal | None) -> None:
        if refusal is not None:
            # A provider does no work for a refused call, so the units beside the request come back.
            done = {unit: 0.0 for unit in self.need.units if unit not in IMPLIED}
            units = {**done, **units}
        self.units = units
        self.tell()
        self._calls.arrived(self)

    def corrected(self, by_hand: Units) -> None:
        self.by_hand = {**self.by_hand, **by_hand}
        self.tell()

    def tell(self) -> None:
        """Under one number, so that a later report takes the place of an earlier one."""
        if self._number is None:
            self._number = self._calls.number()
        units = {**self.units, **self.by_hand}
        self._calls.tally.used(Usage(pool=self.need.pool, key=self.need.key, units=units), self._number)

    @contextmanager
    def _without_raising(self) -> Iterator[None]:
        """A call that is paid for must not fail because of a hook."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - told instead
            self._calls.tally.warned(f"watch: {type(error).__name__}: {error}"[:500])

    def _next_departure(self) -> Departure | None:
        first, self._has_left = not self._has_left, True
        return self._calls.departure(self, first=first)

    def _need_of(self, departure: Departure) -> Need:
        if departure is Departure.LATE and not self.is_extra:
            return self.need
        return Need(self.need.pool, self.need.key, ONE_REQUEST)
