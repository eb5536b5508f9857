"""So many under way at once."""

from __future__ import annotations

import math
from typing import Self

import msgspec

from tidemill.core.limits import Limit
from tidemill.core.windows.window import Guards, Instant


class Concurrent(msgspec.Struct, frozen=True, tag="concurrent"):
    """Freed when a call ends, so nobody can say how long that takes: `wait` is infinite until then."""

    held: float = 0.0

    def counted(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return self.held

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return limit.amount - self.held

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        return 0.0 if units <= self.room(limit, now, guards) else math.inf

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        return type(self)(self.held + units), 0.0

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        return type(self)(max(0.0, self.held - units))

    def lost(self, limit: Limit, now: Instant) -> Self:
        """Reservations are on disk: what is held is known."""
        return self
