"""Rolling windows, and paced windows, which also spread calls evenly."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import Self

import msgspec

from tidemill.core.limits import Limit, window_seconds
from tidemill.core.windows.base import LONG_AGO, TOLERANCE, Guards, Instant

SLOTS_PER_WINDOW = 256
"""Slots per window: a unit counts up to 1/256 of the window too long, never too short."""

WindowSlot = tuple[float, float]
_end: Callable[[WindowSlot], float] = itemgetter(0)
_units: Callable[[WindowSlot], float] = itemgetter(1)


class RollingWindow(msgspec.Struct, frozen=True, tag="rolling"):
    """A rolling window that counts units in short time slices. `slots` has one pair per slice, in order: the
    boot-clock time when the slice ends, and the units of the slice."""

    slots: tuple[WindowSlot, ...] = ()

    def counted(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return sum(map(_units, self._counted(limit, now, guards)))

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return limit.amount - self.counted(limit, now, guards)

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        if units > limit.amount + TOLERANCE:
            return math.inf
        counted = self._counted(limit, now, guards)
        missing = units - limit.amount + sum(map(_units, counted))
        wait = 0.0
        for end, freed in counted:
            if missing <= TOLERANCE:
                break
            missing -= freed
            wait = end + window_seconds(limit) + guards.jitter - now.boot
        return wait

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        end = _slot_end(limit, now.boot)
        counted = self._counted(limit, now, guards)
        if counted and counted[-1][0] >= end:
            *before, (end, units_there) = counted
            return type(self)((*before, (end, units_there + units))), end
        return type(self)((*counted, (end, units))), end

    def taken_until(self, limit: Limit, units: float, until: float, now: Instant, guards: Guards) -> Self:
        """Returns the window after `units` of external usage were added. The provider frees them at
        boot-clock time `until`, at most one window from now."""
        end = _slot_end(limit, until - window_seconds(limit))
        slots = dict(self._counted(limit, now, guards))
        slots[end] = slots.get(end, 0.0) + units
        return type(self)(tuple(sorted(slots.items())))

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        return type(self)(tuple((end, used - units if end == mark else used) for end, used in self.slots))

    def lost(self, limit: Limit, now: Instant) -> Self:
        return type(self)(((now.boot, limit.amount),))

    def _counted(self, limit: Limit, now: Instant, guards: Guards) -> tuple[WindowSlot, ...]:
        since = now.boot - window_seconds(limit) - guards.jitter
        return self.slots[bisect_right(self.slots, since, key=_end) :]


def _slot_end(limit: Limit, boot: float) -> float:
    """Returns the end of the time slice that contains the boot-clock time `boot`."""
    width = window_seconds(limit) / SLOTS_PER_WINDOW
    return (math.floor(boot / width) + 1) * width


PACE_SECONDS = 1.0
"""A limit of 60 per minute may be enforced as 1 per second; no provider is known to check shorter spans."""


class PacedWindow(msgspec.Struct, frozen=True, tag="paced"):
    """A rolling window that also spreads calls evenly. The pace is a second, small bucket that holds the
    units of one second, or one unit if that is more. `next` is the boot-clock time when this bucket is full
    again."""

    rolling: RollingWindow = RollingWindow()
    next: float = LONG_AGO

    def counted(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return self.rolling.counted(limit, now, guards)

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        free = self.rolling.room(limit, now, guards)
        missing = (self.next + guards.jitter - now.boot) * _rate(limit)
        return free if missing <= TOLERANCE else min(free, _burst_units(limit) - missing)

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        spare = max(0.0, _burst_units(limit) - units) / _rate(limit)
        # If only the first of two calls is late, they reach the provider closer together: add the jitter.
        pace = self.next + guards.jitter - spare - now.boot
        return max(self.rolling.wait(limit, units, now, guards), pace, 0.0)

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        rolling, mark = self.rolling.taken(limit, units, now, guards)
        return type(self)(rolling, max(self.next, now.boot) + units / _rate(limit)), mark

    def taken_until(self, limit: Limit, units: float, until: float, now: Instant, guards: Guards) -> Self:
        """Returns the window with external units, as `RollingWindow.taken_until` does. The pace of our own
        calls does not change."""
        return type(self)(self.rolling.taken_until(limit, units, until, now, guards), self.next)

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        """Returns the window after a refund. The pace of later calls does not change."""
        return type(self)(self.rolling.returned(limit, units, mark, now), self.next)

    def lost(self, limit: Limit, now: Instant) -> Self:
        return type(self)(self.rolling.lost(limit, now), now.boot)


def _rate(limit: Limit) -> float:
    return limit.amount / window_seconds(limit)


def _burst_units(limit: Limit) -> float:
    return max(1.0, _rate(limit) * PACE_SECONDS)
