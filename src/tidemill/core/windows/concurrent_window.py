"""A window of calls in flight."""

from __future__ import annotations

import math
from typing import Self

import msgspec

from tidemill.core.limits import Limit
from tidemill.core.windows.base import Guards, Instant


class ConcurrentWindow(msgspec.Struct, frozen=True, tag="concurrent"):
    """The window of a limit on concurrency. `held` counts the calls in flight. `wait` is infinite if too many
    calls are in flight."""

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
        """Returns the window unchanged. Reservations are stored on disk, so the count is known even after a
        restart."""
        return self
