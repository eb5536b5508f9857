"""A counter per day, week or month of the provider's zone."""

from __future__ import annotations

import math
from typing import Self

import msgspec

from tidemill.core.calendars import Period, period_at
from tidemill.core.limits import Limit, calendar_of
from tidemill.core.windows.window import TINY, Guards, Instant


class CalendarCount(msgspec.Struct, frozen=True, tag="calendar"):
    """What was used in the period that began at wall time `period`.

    Around the turn of a period nothing is taken: a call decided before it could be counted after it.
    """

    period: float = 0.0
    used: float = 0.0

    def counted(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return self._used(_period(limit, now))

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        period = _period(limit, now)
        left = limit.amount - self._used(period)
        return min(left, 0.0) if _turning(period, now, guards) else left

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        if units > limit.amount + TINY:
            return math.inf
        period = _period(limit, now)
        if units <= limit.amount - self._used(period) + TINY and now.wall < _closes(period, guards):
            return max(0.0, period.start + guards.midnight - now.wall)
        return period.end + guards.midnight - now.wall

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        period = _period(limit, now)
        begun = max(period.start, self.period)
        return type(self)(begun, self._used(period) + units), begun

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        """What comes back after its period is over is worth nothing."""
        return type(self)(self.period, max(0.0, self.used - units)) if mark == self.period else self

    def lost(self, limit: Limit, now: Instant) -> Self:
        """A calendar's counter is on disk and outlives a boot: nothing is lost."""
        return self

    def _used(self, period: Period) -> float:
        """A wall clock that was set back is still in the period it came from: the counter holds."""
        return self.used if self.period >= period.start else 0.0


def _period(limit: Limit, now: Instant) -> Period:
    return period_at(calendar_of(limit), now.wall)


def _closes(period: Period, guards: Guards) -> float:
    return period.end - guards.midnight - guards.jitter


def _turning(period: Period, now: Instant, guards: Guards) -> bool:
    return now.wall < period.start + guards.midnight or now.wall >= _closes(period, guards)
