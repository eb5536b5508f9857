"""Spread evenly: for providers whose shape nobody knows."""

from __future__ import annotations

from typing import Self

import msgspec

from tidemill.core.limits import Limit, seconds_of
from tidemill.core.windows.rolling import Rolling
from tidemill.core.windows.window import TINY, Guards, Instant


class Paced(msgspec.Struct, frozen=True, tag="paced"):
    """After a take of so many units nothing is taken until they would have flowed in again; and
    rolling holds too. `next` is a boot time."""

    rolling: Rolling = Rolling()
    next: float = 0.0

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        free = self.rolling.room(limit, now, guards)
        return min(free, 0.0) if now.boot < self.next - TINY else free

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        return max(self.rolling.wait(limit, units, now, guards), self.next - now.boot, 0.0)

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        rolling, mark = self.rolling.taken(limit, units, now, guards)
        rest = units * seconds_of(limit) / limit.amount
        return type(self)(rolling, max(self.next, now.boot) + rest), mark

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        """The pace is kept: a call was made."""
        return type(self)(self.rolling.returned(limit, units, mark, now), self.next)

    def lost(self, limit: Limit, now: Instant) -> Self:
        return type(self)(self.rolling.lost(limit, now), now.boot)
