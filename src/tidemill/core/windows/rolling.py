"""At most so many in any stretch as long as the window."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import Self

import msgspec

from tidemill.core.limits import Limit, seconds_of
from tidemill.core.windows.window import TINY, Guards, Instant

SLOTS = 256
"""A window is counted in so many steps: a unit counts up to 1/256 of it too long, never too short."""

Slot = tuple[float, float]
_end: Callable[[Slot], float] = itemgetter(0)
_units: Callable[[Slot], float] = itemgetter(1)


class Rolling(msgspec.Struct, frozen=True, tag="rolling"):
    """`slots` are pairs of a slot's end (boot time) and its units, in order. A slot counts until its end
    plus the window plus the jitter, so a window that is edited counts what it would have counted."""

    slots: tuple[Slot, ...] = ()

    def counted(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return sum(map(_units, self._counted(limit, now, guards)))

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return limit.amount - self.counted(limit, now, guards)

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        if units > limit.amount + TINY:
            return math.inf
        counted = self._counted(limit, now, guards)
        missing = units - limit.amount + sum(map(_units, counted))
        wait = 0.0
        for end, freed in counted:
            if missing <= TINY:
                break
            missing -= freed
            wait = end + seconds_of(limit) + guards.jitter - now.boot
        return wait

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        end = _slot_end(limit, now.boot)
        kept = self._counted(limit, now, guards)
        if kept and kept[-1][0] >= end:
            *before, (end, units_there) = kept
            return type(self)((*before, (end, units_there + units))), end
        return type(self)((*kept, (end, units))), end

    def taken_until(self, limit: Limit, units: float, until: float, now: Instant, guards: Guards) -> Self:
        """After a take by others that is free again at boot time `until`, at most a window from now. Our next
        call keeps the jitter from it, as from a wait that a provider states."""
        end = _slot_end(limit, until - seconds_of(limit))
        slots = dict(self._counted(limit, now, guards))
        slots[end] = slots.get(end, 0.0) + units
        return type(self)(tuple(sorted(slots.items())))

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        return type(self)(tuple((end, there - units if end == mark else there) for end, there in self.slots))

    def lost(self, limit: Limit, now: Instant) -> Self:
        return type(self)(((now.boot, limit.amount),))

    def _counted(self, limit: Limit, now: Instant, guards: Guards) -> tuple[Slot, ...]:
        since = now.boot - seconds_of(limit) - guards.jitter
        return self.slots[bisect_right(self.slots, since, key=_end) :]


def _slot_end(limit: Limit, boot: float) -> float:
    """Of the slot that a moment belongs to."""
    width = seconds_of(limit) / SLOTS
    return (math.floor(boot / width) + 1) * width
