"""A counter per day, week or month of the provider's zone."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Self

import msgspec
from msgspec.structs import replace

from tidemill.core.calendars import Calendar, Period, period_at
from tidemill.core.limits import Limit, calendar_of
from tidemill.core.windows.window import TINY, Guards, Instant


class CalendarCount(msgspec.Struct, frozen=True, tag="calendar"):
    """What was used in the period that began at wall time `period`.

    Around the turn of a period nothing is taken: a call decided before it could be counted after it.

    Somebody may set the wall clock, and nobody can tell which time was the right one (I26). `skew` is how far
    the wall was ahead of the boot clock when the first unit was taken: the wall as it would be without that,
    in whose period `twin` the count began. A count ends when both walls have turned. Between the two turns
    nothing is taken, so that whichever is right, no period is used twice.
    """

    period: float = 0.0
    used: float = 0.0
    skew: float | None = None
    twin: float = 0.0

    def counted(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return self.used if self._turns_in(limit, now, guards) > 0 else 0.0

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        left = limit.amount - self.counted(limit, now, guards)
        kept_back = self._turned_in(limit, now, guards) > 0 or self._half_turned(limit, now, guards)
        return min(left, 0.0) if kept_back else left

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        if units > limit.amount + TINY:
            return math.inf
        turns = self._turns_in(limit, now, guards)
        if turns > 0 and (units > limit.amount - self.used + TINY or self._half_turned(limit, now, guards)):
            return turns + guards.midnight
        return self._turned_in(limit, now, guards)

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        if self._turns_in(limit, now, guards) > 0:
            return replace(self, used=self.used + units), self.period
        skew = now.wall - now.boot if self.skew is None else self.skew
        begun = _period(limit, now.wall).start
        twin = begun if self._agrees(now, guards) else _period(limit, now.boot + skew).start
        return type(self)(begun, units, skew, twin), begun

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        """What comes back after its period is over is worth nothing."""
        return replace(self, used=max(0.0, self.used - units)) if mark == self.period else self

    def lost(self, limit: Limit, now: Instant) -> Self:
        """A calendar's counter is on disk and outlives a boot; what the other clock showed does not."""
        return replace(self, skew=None)

    def _agrees(self, now: Instant, guards: Guards) -> bool:
        """Nobody has set the wall since, beyond what the guard is for."""
        return self.skew is None or abs(now.wall - now.boot - self.skew) <= guards.midnight

    def _unset(self, now: Instant) -> float:
        """The wall time if nobody had set it."""
        return now.wall if self.skew is None else now.boot + self.skew

    def _turns_in(self, limit: Limit, now: Instant, guards: Guards) -> float:
        """Seconds until the count is over by both walls; not above 0 when it is. A wall that was set back is
        still in the period it came from."""
        ends = _end(calendar_of(limit), self.period) - now.wall
        if self._agrees(now, guards):
            return ends
        return max(ends, _end(calendar_of(limit), self.twin) - self._unset(now))

    def _half_turned(self, limit: Limit, now: Instant, guards: Guards) -> bool:
        if self._agrees(now, guards):
            return False
        turned = now.wall >= _end(calendar_of(limit), self.period)
        return turned != (self._unset(now) >= _end(calendar_of(limit), self.twin))

    def _turned_in(self, limit: Limit, now: Instant, guards: Guards) -> float:
        """Seconds until no period is about to turn or has just turned, by either wall."""
        wait = _turned_in(limit, now.wall, guards)
        return wait if self._agrees(now, guards) else max(wait, _turned_in(limit, self._unset(now), guards))


def _period(limit: Limit, wall: float) -> Period:
    return period_at(calendar_of(limit), wall)


@lru_cache(maxsize=1024)
def _end(calendar: Calendar, start: float) -> float:
    """Of the period that began then. Asked several times a claim, and the same all day."""
    return period_at(calendar, start).end


def _turned_in(limit: Limit, wall: float, guards: Guards) -> float:
    period = _period(limit, wall)
    if wall >= period.end - guards.midnight - guards.jitter:
        return period.end + guards.midnight - wall
    return max(0.0, period.start + guards.midnight - wall)
