"""Spread evenly: for providers whose shape nobody knows."""

from __future__ import annotations

from typing import Self

import msgspec

from tidemill.core.limits import Limit, seconds_of
from tidemill.core.windows.rolling import Rolling
from tidemill.core.windows.window import LONG_AGO, TINY, Guards, Instant

SHORT = 1.0
"""Seconds. 60 a minute may be enforced as 1 a second; nobody is known to look at less."""


class Paced(msgspec.Struct, frozen=True, tag="paced"):
    """Rolling holds, and so does a bucket (see there) of what flows in during a second, or of one call where
    that is more. `next` is the boot time when all of it has flowed in again.

    Two calls that were decided apart may arrive closer together by the jitter, so where a second holds no
    more than one call they are the jitter further apart than the rate would have it.
    """

    rolling: Rolling = Rolling()
    next: float = LONG_AGO

    def counted(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return self.rolling.counted(limit, now, guards)

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        free = self.rolling.room(limit, now, guards)
        missing = (self.next + guards.jitter - now.boot) * _rate(limit)
        return free if missing <= TINY else min(free, _at_once(limit) - missing)

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        spare = max(0.0, _at_once(limit) - units) / _rate(limit)
        pace = self.next + guards.jitter - spare - now.boot
        return max(self.rolling.wait(limit, units, now, guards), pace, 0.0)

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        rolling, mark = self.rolling.taken(limit, units, now, guards)
        return type(self)(rolling, max(self.next, now.boot) + units / _rate(limit)), mark

    def taken_until(self, limit: Limit, units: float, until: float, now: Instant, guards: Guards) -> Self:
        """As `Rolling.taken_until`. The pace of our own calls stays as it is."""
        return type(self)(self.rolling.taken_until(limit, units, until, now, guards), self.next)

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        """The pace is kept: a call was made."""
        return type(self)(self.rolling.returned(limit, units, mark, now), self.next)

    def lost(self, limit: Limit, now: Instant) -> Self:
        return type(self)(self.rolling.lost(limit, now), now.boot)


def _rate(limit: Limit) -> float:
    return limit.amount / seconds_of(limit)


def _at_once(limit: Limit) -> float:
    return max(1.0, _rate(limit) * SHORT)
