"""A window of units per calendar period, such as a day or a month."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Self

import msgspec
from msgspec.structs import replace

from tidemill.core.calendars import Calendar, CalendarPeriod, period_at
from tidemill.core.limits import Limit, window_calendar
from tidemill.core.windows.base import TOLERANCE, Guards, Instant


class CalendarWindow(msgspec.Struct, frozen=True, tag="calendar"):
    """The units used in the calendar period that began at wall time `period`. Around the end of a period no
    units are granted.

    The wall clock may be set, and it is unknown whether the old or the new time is right (I26). The window
    therefore follows two times: the wall time, and the unset time, which is the wall time as if the clock had
    not been set.

    - `skew`: the unset time minus the boot clock.
    - `twin`: the start of the period by the unset time.

    The count ends when both times have passed the end of their period. While only one of them has, no units
    are granted."""

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
        if units > limit.amount + TOLERANCE:
            return math.inf
        turns = self._turns_in(limit, now, guards)
        if turns > 0 and (
            units > limit.amount - self.used + TOLERANCE or self._half_turned(limit, now, guards)
        ):
            return turns + guards.midnight
        return self._turned_in(limit, now, guards)

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        if self._turns_in(limit, now, guards) > 0:
            return replace(self, used=self.used + units), self.period
        skew = now.wall - now.boot if self.skew is None else self.skew
        begun = _period_at(limit, now.wall).start
        twin = begun if self._agrees(now, guards) else _period_at(limit, now.boot + skew).start
        return type(self)(begun, units, skew, twin), begun

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        """Returns the window after a refund. A refund for a period that has ended is ignored."""
        return replace(self, used=max(0.0, self.used - units)) if mark == self.period else self

    def lost(self, limit: Limit, now: Instant) -> Self:
        """Returns the window without `skew`, because the boot clock starts again after a restart. The count
        is stored on disk and stays."""
        return replace(self, skew=None)

    def _agrees(self, now: Instant, guards: Guards) -> bool:
        """True if the wall clock was not set since the first use, or by at most `guards.midnight` seconds."""
        return self.skew is None or abs(now.wall - now.boot - self.skew) <= guards.midnight

    def _unset(self, now: Instant) -> float:
        """Returns the unset time (see the class): the wall time as if the clock had not been set."""
        return now.wall if self.skew is None else now.boot + self.skew

    def _turns_in(self, limit: Limit, now: Instant, guards: Guards) -> float:
        """Returns the seconds until the period of this count has ended by both times: the wall time and the
        unset time (see the class). The result is 0 or less if it has ended."""
        calendar = window_calendar(limit)
        if self.skew is None:
            return _period_end(calendar, max(self.period, self.twin)) - now.wall
        twin_ends = _period_end(calendar, self.twin)
        # `period` may come from a wrong wall time that was corrected.
        if self._agrees(now, guards):
            return twin_ends - now.wall
        return max(_period_end(calendar, self.period) - now.wall, twin_ends - self._unset(now))

    def _half_turned(self, limit: Limit, now: Instant, guards: Guards) -> bool:
        if self._agrees(now, guards):
            return False
        turned = now.wall >= _period_end(window_calendar(limit), self.period)
        return turned != (self._unset(now) >= _period_end(window_calendar(limit), self.twin))

    def _turned_in(self, limit: Limit, now: Instant, guards: Guards) -> float:
        """Returns the seconds until units may be granted again around the change of a period; 0 if they may
        be granted now. Both times are checked (see the class)."""
        wait = _seconds_until_clear(limit, now.wall, guards)
        return (
            wait
            if self._agrees(now, guards)
            else max(wait, _seconds_until_clear(limit, self._unset(now), guards))
        )


def _period_at(limit: Limit, wall: float) -> CalendarPeriod:
    return period_at(window_calendar(limit), wall)


@lru_cache(maxsize=1024)
def _period_end(calendar: Calendar, start: float) -> float:
    """Returns the end of the calendar period that began at wall time `start`. The result is cached, because
    each claim needs it several times."""
    return period_at(calendar, start).end


def _seconds_until_clear(limit: Limit, wall: float, guards: Guards) -> float:
    period = _period_at(limit, wall)
    # A call that is claimed before the end of a period could reach the provider after it.
    if wall >= period.end - guards.midnight - guards.jitter:
        return period.end + guards.midnight - wall
    return max(0.0, period.start + guards.midnight - wall)
