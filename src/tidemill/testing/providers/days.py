"""Local days by a rule of its own: the date a zone's clock shows, and a search for when it shows a later
one. Nothing is borrowed from `tidemill.core.calendars`, so that a mistake there cannot hide here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tidemill.testing.providers.quota import TICKS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STEP = 15 * 60 * TICKS
"""Clocks are not set more often than this, and a date is shown for longer."""


def local_date(zone: str, wall: int) -> int:
    """The date the zone's clock shows at a moment (ticks since 1970), as a number that grows by one a day."""
    return (EPOCH + timedelta(microseconds=wall)).astimezone(ZoneInfo(zone)).date().toordinal()


def next_date(zone: str, wall: int) -> int:
    """The first moment after `wall` at which the clock shows a later date than at `wall`."""
    today = local_date(zone, wall)
    low, high = wall, wall + STEP
    while local_date(zone, high) <= today:
        low, high = high, high + STEP
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if local_date(zone, middle) > today else (middle, high)
    return high
