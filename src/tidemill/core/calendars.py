"""Days, weeks and months as a provider counts them: local periods as moments in real time.

Everything goes through UTC: a local midnight that does not exist (the clocks jump over it) is the
moment they jump, and one that comes twice is the first of the two.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec


class Every(StrEnum):
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class Calendar(msgspec.Struct, frozen=True, tag="calendar"):
    """A period that begins at local midnight; weeks begin on Monday."""

    every: Every
    zone: str = "UTC"

    def problem(self) -> str | None:
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            return f"zone: {self.zone!r} is not in the time zone database; write one such as Asia/Shanghai"
        return None


def Day(zone: str = "UTC") -> Calendar:  # noqa: N802 - reads as the window it is: per=Day("…")
    """A day in that zone: `per=Day("America/Los_Angeles")`."""
    return Calendar(Every.DAY, zone)


def Week(zone: str = "UTC") -> Calendar:  # noqa: N802 - as above
    """A week in that zone, from Monday on."""
    return Calendar(Every.WEEK, zone)


def Month(zone: str = "UTC") -> Calendar:  # noqa: N802 - as above
    """A month in that zone, from its first day on."""
    return Calendar(Every.MONTH, zone)


class Period(msgspec.Struct, frozen=True):
    """Wall times; `end` is the beginning of the next one."""

    start: float
    end: float


def period_at(calendar: Calendar, wall: float) -> Period:
    """The period a moment lies in."""
    zone = ZoneInfo(calendar.zone)
    first = _first_day(calendar.every, datetime.fromtimestamp(wall, zone).date())
    # Where a date is skipped or midnight is moved, the local date can be one ahead of its own beginning.
    while _midnight(calendar.zone, first) > wall:
        first = _first_day(calendar.every, first - timedelta(days=1))
    while (end := _midnight(calendar.zone, _next(calendar.every, first))) <= wall:
        first = _next(calendar.every, first)
    return Period(_midnight(calendar.zone, first), end)


def _first_day(every: Every, day: date) -> date:
    if every is Every.WEEK:
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if every is Every.MONTH else day


def _next(every: Every, first: date) -> date:
    if every is Every.MONTH:
        return (first + timedelta(days=32)).replace(day=1)
    return first + timedelta(days=7 if every is Every.WEEK else 1)


@lru_cache(maxsize=1024)
def _midnight(zone: str, day: date) -> float:
    """The first moment of that local date, or of what comes after it when the date is skipped."""
    place = ZoneInfo(zone)
    guess = datetime(day.year, day.month, day.day, tzinfo=place).astimezone(UTC)
    # Python reads a missing midnight with the offset of before the jump, which lands after it.
    low, high = guess - timedelta(hours=26), guess + timedelta(hours=26)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        if middle.astimezone(place).date() < day:
            low = middle
        else:
            high = middle
    return float(round(high.timestamp()))
