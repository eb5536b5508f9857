"""A fixed time of day in a zone, for whoever knows better than midnight when a quota comes back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from tidemill.core.calendars import Day
from tidemill.core.numbers import is_whole


class TimeOfDay(msgspec.Struct, frozen=True):
    """`TimeOfDay(16, 30, "Asia/Shanghai")`: half past four in the afternoon there."""

    hour: int
    minute: int = 0
    zone: str = "UTC"

    def problem(self) -> str | None:
        whole = is_whole(self.hour, 0) and is_whole(self.minute, 0)
        if not (whole and self.hour <= 23 and self.minute <= 59):  # noqa: PLR2004 - a clock face
            said = f"{self.hour:02}:{self.minute:02}" if whole else f"{self.hour!r}, {self.minute!r}"
            return f"time of day: must be from 00:00 to 23:59, is {said}"
        return Day(self.zone).problem()

    def after(self, wall: float) -> float:
        """The next such moment, later than `wall`. A time the clocks jump over is the moment they have
        jumped past it; one that comes twice is the first of the two."""
        zone = ZoneInfo(self.zone)
        day = datetime.fromtimestamp(wall, zone).date() - timedelta(days=1)
        while True:
            local = datetime(day.year, day.month, day.day, self.hour, self.minute, tzinfo=zone)
            # Comparing across zones would ignore the fold: only UTC is compared.
            moment = local.astimezone(UTC).timestamp()
            if moment > wall:
                return moment
            day += timedelta(days=1)
