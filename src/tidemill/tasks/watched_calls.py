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
from tidemill.core.windows import LEAVE_SHARE

if TYPE_CHECKING:
    from tidemill.core.refusals import Refusal
    from tidemill.tasks.metering import Tally

Place = tuple[str, str | None]
"""A pool, and the key of a keyed one."""
MAX_UNTOLD = 100
"""Answers of one attempt that `ctx.used` may still correct."""


class Reader(Protocol):
    """Reads an answer for a pool: what it used, and whether it was refused. Tells the pool what it says."""

    def __call__(self, need: Need, source: Any) -> tuple[Units, Refusal | None]: ...


LAST: ContextVar[Call | None] = ContextVar("tidemill_last_call", default=None)
"""The call whose answer this code has just received."""


class Calls:
    """Of one attempt. `reserved` counts by pool the requests that may still leave without being extra."""

    def __init__(self, tally: Tally, read: Reader) -> None:
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
        if first and self.is_extra(call):
            call.is_extra, call.late_at = True, now + LEAVE_SHARE * call.jitter
            return Departure.EXTRA
        with self._lock:
            if now <= (call.late_at if call.is_extra else self._late_at.get(id(need), call.late_at)):
                return None
            call.late_at = self._late_at[id(need)] = now + LEAVE_SHARE * call.jitter
            return Departure.LATE

    def is_extra(self, call: Call) -> bool:
        """Counts a request of the call: True when nothing is reserved for it."""
        with self._lock:
            left = self._reserved.get(call.place, 0.0) - 1.0
            self._reserved[call.place] = max(left, 0.0)
        return left < 0

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
        """When they left is unknown. To enter the units of a late one now, at its answer, would count a call
        that took 60 s for 120 s."""
        if self._has_left:
            return
        self._has_left = True
        for _ in range(requests):
            if self._calls.is_extra(self):
                with self._without_raising():
                    self._calls.tally.departed(self._need_of(Departure.EXTRA), Departure.EXTRA)

    def answered(self, response: Any) -> None:
        with self._without_raising():
            self._count(*self._calls.read(self.need, response))

    def _count(self, units: Units, refusal: Refusal | None) -> None:
        if refusal is not None and not refusal.broke_off:
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
