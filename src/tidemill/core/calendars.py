"""Days, weeks and months in a time zone, and fixed times of day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from tidemill.core.validation import is_integer


class CalendarUnit(StrEnum):
    """The length of a calendar period."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class Calendar(msgspec.Struct, frozen=True, tag="calendar"):
    """A calendar period in a time zone: a day, a week or a month. Every period begins at local midnight, and
    weeks begin on Monday."""

    every: CalendarUnit
    zone: str = "UTC"

    def problem(self) -> str | None:
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            return f"zone: {self.zone!r} is not in the time zone database; write one such as Asia/Shanghai"
        return None


def Day(zone: str = "UTC") -> Calendar:  # noqa: N802 - reads as the window it is: per=Day("…")
    """Returns the window of one calendar day in that zone, such as `per=Day("America/Los_Angeles")`."""
    return Calendar(CalendarUnit.DAY, zone)


def Week(zone: str = "UTC") -> Calendar:  # noqa: N802 - as above
    """Returns the window of one calendar week in that zone. Weeks begin on Monday."""
    return Calendar(CalendarUnit.WEEK, zone)


def Month(zone: str = "UTC") -> Calendar:  # noqa: N802 - as above
    """Returns the window of one calendar month in that zone."""
    return Calendar(CalendarUnit.MONTH, zone)


class CalendarPeriod(msgspec.Struct, frozen=True):
    """One period of a calendar, such as one day. `start` and `end` are wall times. `end` is also the start of
    the next period."""

    start: float
    end: float


def period_at(calendar: Calendar, wall: float) -> CalendarPeriod:
    """Returns the period of the calendar that contains the wall time `wall`."""
    zone = ZoneInfo(calendar.zone)
    first = _first_day(calendar.every, datetime.fromtimestamp(wall, zone).date())
    # If a date is skipped or midnight is moved, the local date can begin after this moment.
    while _midnight(calendar.zone, first) > wall:
        first = _first_day(calendar.every, first - timedelta(days=1))
    while (end := _midnight(calendar.zone, _next_first_day(calendar.every, first))) <= wall:
        first = _next_first_day(calendar.every, first)
    return CalendarPeriod(_midnight(calendar.zone, first), end)


def _first_day(every: CalendarUnit, day: date) -> date:
    if every is CalendarUnit.WEEK:
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if every is CalendarUnit.MONTH else day


def _next_first_day(every: CalendarUnit, first: date) -> date:
    if every is CalendarUnit.MONTH:
        return (first + timedelta(days=32)).replace(day=1)
    return first + timedelta(days=7 if every is CalendarUnit.WEEK else 1)


@lru_cache(maxsize=1024)
def _midnight(zone: str, day: date) -> float:
    """Returns the wall time at which the local date `day` begins. If the zone skips that date, returns the
    beginning of the next date."""
    zone_info = ZoneInfo(zone)
    guess = datetime(day.year, day.month, day.day, tzinfo=zone_info).astimezone(UTC)
    # Python reads a missing midnight with the offset from before the jump, which lands after it.
    low, high = guess - timedelta(hours=26), guess + timedelta(hours=26)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        if middle.astimezone(zone_info).date() < day:
            low = middle
        else:
            high = middle
    return float(round(high.timestamp()))


class TimeOfDay(msgspec.Struct, frozen=True):
    """A time of day in a time zone. `TimeOfDay(16, 30, "Asia/Shanghai")` is 16:30 in Shanghai."""

    hour: int
    minute: int = 0
    zone: str = "UTC"

    def problem(self) -> str | None:
        are_integers = is_integer(self.hour, 0) and is_integer(self.minute, 0)
        if not (are_integers and self.hour <= 23 and self.minute <= 59):  # noqa: PLR2004 - a clock face
            shown = f"{self.hour:02}:{self.minute:02}" if are_integers else f"{self.hour!r}, {self.minute!r}"
            return f"time of day: must be from 00:00 to 23:59, is {shown}"
        return Day(self.zone).problem()

    def after(self, wall: float) -> float:
        """Returns the next wall time after `wall` at which this time of day occurs. If the clocks skip it on
        a date, the result lies after the jump."""
        zone = ZoneInfo(self.zone)
        day = datetime.fromtimestamp(wall, zone).date() - timedelta(days=1)
        while True:
            local = datetime(day.year, day.month, day.day, self.hour, self.minute, tzinfo=zone)
            # Comparing across zones would ignore the fold, so only UTC times are compared.
            moment = local.astimezone(UTC).timestamp()
            if moment > wall:
                return moment
            day += timedelta(days=1)
