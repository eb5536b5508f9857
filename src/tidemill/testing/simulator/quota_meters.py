"""The meters of quotas, one class per shape, in whole units and whole microseconds.

A meter only counts calls, in the order of their times. The account decides whether to admit a call.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from tidemill.testing.simulator.quotas import Quota, find_next_date, to_ticks


class QuotaMeter(Protocol):
    """Counts the used units of one quota. Times are microseconds since the provider's start. The times of
    successive calls never decrease."""

    amount: int

    def left(self, at: int) -> int:
        """Returns the free units; negative if more were taken than allowed."""
        ...

    def wait(self, units: int, at: int) -> int | None:
        """Returns the microseconds until `units` are free if no other call comes; None if this is unknown or
        never happens."""
        ...

    def full(self, at: int) -> int:
        """Returns the microseconds until the whole quota is free if no other call comes."""
        ...

    def take(self, units: int, at: int) -> None: ...

    def reject(self, at: int) -> None:
        """Counts a refused call. It is called only if the provider counts refused calls as requests."""
        ...

    def give_back(self, units: int) -> None:
        """Records the end of a call. Only the concurrency meter frees units here."""
        ...

    def change(self, amount: int, at: int) -> None: ...


class RollingMeter:
    """Counts the units in a rolling window. A call at time `t` stops counting at `t + window`."""

    def __init__(self, quota: Quota) -> None:
        self.amount, self.window = quota.amount, to_ticks(quota.per)
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

    def change(self, amount: int, at: int) -> None:  # noqa: ARG002 - a new amount does not change past arrivals
        self.amount = amount


class TokenBucketMeter:
    """Counts the units of a token bucket. `_level` is the number of free units multiplied by the window, so
    that the refill per microsecond is an integer."""

    def __init__(self, quota: Quota) -> None:
        self.amount, self.window = quota.amount, to_ticks(quota.per)
        self._interval = self.window if quota.interval is None else to_ticks(quota.interval)
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
        """Takes one unit for a refused call, but does not lower the level below 0. So a caller that retries
        without a pause is never admitted."""
        self._refill(at)
        self._level = min(self._level, max(0, self._level - self.window))

    def give_back(self, units: int) -> None: ...

    def change(self, amount: int, at: int) -> None:
        self._refill(at)
        self.amount = amount
        self._level = min(self._level, self._size())

    def _size(self) -> int:
        """Returns the capacity of the bucket, multiplied by the window. It is at least one unit, because
        otherwise no call would fit."""
        return max(self.amount * self._interval, self.window if self.amount else 0)

    def _refill(self, at: int) -> None:
        self._level = min(self._size(), self._level + self.amount * (at - self._at))
        self._at = at


class DayMeter:
    """Counts the units per calendar day of a time zone. `wall` is the provider's wall time at its start, in
    microseconds. It includes the error of the provider's clock."""

    def __init__(self, quota: Quota, wall: int) -> None:
        self.amount, self._zone, self._wall = quota.amount, quota.zone, wall
        self._used = 0
        self._period_end = find_next_date(self._zone, wall) - wall

    def left(self, at: int) -> int:
        if at >= self._period_end:
            self._used = 0
            self._period_end = find_next_date(self._zone, at + self._wall) - self._wall
        return self.amount - self._used

    def wait(self, units: int, at: int) -> int | None:
        if units > self.amount:
            return None
        return 0 if units <= self.left(at) else self._period_end - at

    def full(self, at: int) -> int:
        self.left(at)
        return self._period_end - at if self._used else 0

    def take(self, units: int, at: int) -> None:
        self.left(at)
        self._used += units

    def reject(self, at: int) -> None:
        self.take(1, at)

    def give_back(self, units: int) -> None: ...

    def change(self, amount: int, at: int) -> None:
        self.left(at)
        self.amount = amount


class PeriodMeter:
    def __init__(self, quota: Quota) -> None:
        self.amount, self.window = quota.amount, to_ticks(quota.per)
        self._used, self._period_end = 0, 0

    def left(self, at: int) -> int:
        if at >= self._period_end:
            self._used = 0
        return self.amount - self._used

    def wait(self, units: int, at: int) -> int | None:
        if units > self.amount:
            return None
        return 0 if units <= self.left(at) else self._period_end - at

    def full(self, at: int) -> int:
        self.left(at)
        return self._period_end - at if self._used else 0

    def take(self, units: int, at: int) -> None:
        self.left(at)
        if units and not self._used:
            self._period_end = at + self.window
        self._used += units

    def reject(self, at: int) -> None:
        self.take(1, at)

    def give_back(self, units: int) -> None: ...

    def change(self, amount: int, at: int) -> None:  # noqa: ARG002 - the current period continues
        self.amount = amount


class ConcurrencyMeter:
    def __init__(self, quota: Quota) -> None:
        self.amount, self._held = quota.amount, 0

    def left(self, at: int) -> int:  # noqa: ARG002 - independent of time
        return self.amount - self._held

    def wait(self, units: int, at: int) -> int | None:
        return 0 if units <= self.left(at) else None

    def full(self, at: int) -> int:  # noqa: ARG002 - the end of a call cannot be predicted
        return 0

    def take(self, units: int, at: int) -> None:  # noqa: ARG002 - independent of time
        self._held += units

    def reject(self, at: int) -> None:
        """Does nothing: a refused call is not in flight."""

    def give_back(self, units: int) -> None:
        self._held -= units

    def change(self, amount: int, at: int) -> None:  # noqa: ARG002 - independent of time
        self.amount = amount


def create_meter(quota: Quota, wall: float) -> QuotaMeter:
    """Creates the meter for a quota. `wall` is the provider's wall time at its start."""
    match quota.shape:
        case "rolling":
            return RollingMeter(quota)
        case "bucket":
            return TokenBucketMeter(quota)
        case "day":
            return DayMeter(quota, to_ticks(wall))
        case "period":
            return PeriodMeter(quota)
        case "concurrent":
            return ConcurrencyMeter(quota)
