"""What a provider counts, one class per shape, in whole units and whole microseconds.

A meter only counts. It is told of calls in the order of their times and never refuses: whether a call is
let in is the account's to decide, because several meters decide together.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from tidemill.testing.providers.days import next_date
from tidemill.testing.providers.quota import Quota, ticks


class Meter(Protocol):
    """Times are ticks since the provider's start and never go back."""

    amount: int

    def left(self, at: int) -> int:
        """Whole units that could be taken now; below 0 when more was taken than there was."""
        ...

    def wait(self, units: int, at: int) -> int | None:
        """Ticks until so many could be taken if nobody else calls; None: that cannot be known, or never."""
        ...

    def full(self, at: int) -> int:
        """Ticks until nothing is missing any more, if nobody calls."""
        ...

    def take(self, units: int, at: int) -> None: ...

    def reject(self, at: int) -> None:
        """A refused call that counts all the same."""
        ...

    def give_back(self, units: int) -> None:
        """A call has ended. Only what counts calls under way takes anything back."""
        ...

    def change(self, amount: int, at: int) -> None: ...


class Rolling:
    """The log of every arrival. What came at `t` no longer counts at `t + window`."""

    def __init__(self, quota: Quota) -> None:
        self.amount, self.window = quota.amount, ticks(quota.per)
        self._log: deque[tuple[int, int]] = deque()
        self._sum = 0

    def left(self, at: int) -> int:
        while self._log and self._log[0][0] <= at - self.window:
            self._sum -= self._log.popleft()[1]
        return self.amount - self._sum

    def wait(self, units: int, at: int) -> int | None:
        if units > self.amount:
            return None
        missing, wait = units - self.left(at), 0
        for when, freed in self._log:
            if missing <= 0:
                break
            missing, wait = missing - freed, when + self.window - at
        return wait

    def full(self, at: int) -> int:
        self.left(at)
        return self._log[-1][0] + self.window - at if self._log else 0

    def take(self, units: int, at: int) -> None:
        self._log.append((at, units))
        self._sum += units

    def reject(self, at: int) -> None:
        self.take(1, at)

    def give_back(self, units: int) -> None: ...

    def change(self, amount: int, at: int) -> None:  # noqa: ARG002 - what was counted stays counted
        self.amount = amount


class Bucket:
    """Levels are kept times the window, which makes what flows in during a tick a whole number."""

    def __init__(self, quota: Quota) -> None:
        self.amount, self.window = quota.amount, ticks(quota.per)
        self._interval = self.window if quota.interval is None else ticks(quota.interval)
        self._level, self._at = self._size(), 0

    def left(self, at: int) -> int:
        self._refill(at)
        return self._level // self.window

    def wait(self, units: int, at: int) -> int | None:
        self._refill(at)
        missing = units * self.window - self._level
        if missing <= 0:
            return 0
        return -(-missing // self.amount) if units * self.window <= self._size() and self.amount else None

    def full(self, at: int) -> int:
        self._refill(at)
        return -(-(self._size() - self._level) // self.amount) if self.amount else 0

    def take(self, units: int, at: int) -> None:
        self._refill(at)
        self._level -= units * self.window

    def reject(self, at: int) -> None:
        """It empties what there is and goes no deeper: whoever never stops calling never gets in, and
        whoever waits gets in after the usual wait."""
        self._refill(at)
        self._level = min(self._level, max(0, self._level - self.window))

    def give_back(self, units: int) -> None: ...

    def change(self, amount: int, at: int) -> None:
        self._refill(at)
        self.amount = amount
        self._level = min(self._level, self._size())

    def _size(self) -> int:
        """Never less than one unit, or nothing would ever fit in."""
        return max(self.amount * self._interval, self.window if self.amount else 0)

    def _refill(self, at: int) -> None:
        self._level = min(self._size(), self._level + self.amount * (at - self._at))
        self._at = at


class Day:
    """Counts what came on the date the zone's clock shows. `wall` is the time of the provider's own
    calendar when it started, its error included."""

    def __init__(self, quota: Quota, wall: int) -> None:
        self.amount, self._zone, self._wall = quota.amount, quota.zone, wall
        self._used = 0
        self._ends = next_date(self._zone, wall) - wall

    def left(self, at: int) -> int:
        if at >= self._ends:
            self._used = 0
            self._ends = next_date(self._zone, at + self._wall) - self._wall
        return self.amount - self._used

    def wait(self, units: int, at: int) -> int | None:
        if units > self.amount:
            return None
        return 0 if units <= self.left(at) else self._ends - at

    def full(self, at: int) -> int:
        self.left(at)
        return self._ends - at if self._used else 0

    def take(self, units: int, at: int) -> None:
        self.left(at)
        self._used += units

    def reject(self, at: int) -> None:
        self.take(1, at)

    def give_back(self, units: int) -> None: ...

    def change(self, amount: int, at: int) -> None:
        self.left(at)
        self.amount = amount


class Period:
    def __init__(self, quota: Quota) -> None:
        self.amount, self.window = quota.amount, ticks(quota.per)
        self._used, self._ends = 0, 0

    def left(self, at: int) -> int:
        if at >= self._ends:
            self._used = 0
        return self.amount - self._used

    def wait(self, units: int, at: int) -> int | None:
        if units > self.amount:
            return None
        return 0 if units <= self.left(at) else self._ends - at

    def full(self, at: int) -> int:
        self.left(at)
        return self._ends - at if self._used else 0

    def take(self, units: int, at: int) -> None:
        self.left(at)
        if units and not self._used:
            self._ends = at + self.window
        self._used += units

    def reject(self, at: int) -> None:
        self.take(1, at)

    def give_back(self, units: int) -> None: ...

    def change(self, amount: int, at: int) -> None:  # noqa: ARG002 - the period goes on
        self.amount = amount


class Concurrent:
    def __init__(self, quota: Quota) -> None:
        self.amount, self._held = quota.amount, 0

    def left(self, at: int) -> int:  # noqa: ARG002 - as it is now
        return self.amount - self._held

    def wait(self, units: int, at: int) -> int | None:
        return 0 if units <= self.left(at) else None

    def full(self, at: int) -> int:  # noqa: ARG002 - calls end when they end
        return 0

    def take(self, units: int, at: int) -> None:  # noqa: ARG002 - as it is now
        self._held += units

    def reject(self, at: int) -> None:
        """It is not under way."""

    def give_back(self, units: int) -> None:
        self._held -= units

    def change(self, amount: int, at: int) -> None:  # noqa: ARG002 - as it is now
        self.amount = amount


def meter_for(quota: Quota, wall: float) -> Meter:
    """`wall`: what the provider's calendar shows at its start."""
    match quota.shape:
        case "rolling":
            return Rolling(quota)
        case "bucket":
            return Bucket(quota)
        case "day":
            return Day(quota, ticks(wall))
        case "period":
            return Period(quota)
        case "concurrent":
            return Concurrent(quota)
