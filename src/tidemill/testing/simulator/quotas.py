"""The quotas of a simulated provider. This module computes local days without `tidemill.core`, so an error in
that package cannot hide in the simulator too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal, Self
from zoneinfo import ZoneInfo

import msgspec

TICKS_PER_SECOND = 1_000_000
"""Ticks per second. Time is counted in whole microseconds, so that rounding never decides about a call."""

QuotaUnit = Literal["requests", "tokens", "input_tokens", "output_tokens", "concurrent"]
QuotaShape = Literal["rolling", "bucket", "day", "period", "concurrent"]
UnitCounts = dict[str, int]

WINDOW_NAMES = {1.0: "second", 60.0: "minute", 3600.0: "hour", 86_400.0: "day"}


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """One quota of a simulated provider.

    - `per`: the window in seconds; 0 if the shape has no window.
    - `zone`: the time zone of a daily quota.
    - `interval`: a token bucket holds the units of this many seconds; by default those of the whole window.
    """

    unit: QuotaUnit
    amount: int
    shape: QuotaShape
    per: float = 0.0
    zone: str = "UTC"
    interval: float | None = None

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError(f"amount: must be 0 or more, is {self.amount}")
        if self.shape in ("rolling", "bucket", "period") and self.per <= 0:
            raise ValueError(f"per: must be above 0 seconds, is {self.per}")
        if self.interval is not None and not 0 < self.interval <= self.per:
            raise ValueError(
                f"interval: must be above 0 and at most the window of {self.per:g} s, is {self.interval}"
            )
        ZoneInfo(self.zone)

    @classmethod
    def rolling(cls, unit: QuotaUnit, amount: int, *, per: float = 60.0) -> Self:
        """Returns a quota of at most `amount` units in any window of `per` seconds."""
        return cls(unit=unit, amount=amount, shape="rolling", per=per)

    @classmethod
    def bucket(
        cls, unit: QuotaUnit, amount: int, *, per: float = 60.0, interval: float | None = None
    ) -> Self:
        """Returns a token bucket that refills evenly with `amount` units per `per` seconds. It holds the
        refill of `interval` seconds; None for `amount` units."""
        return cls(unit=unit, amount=amount, shape="bucket", per=per, interval=interval)

    @classmethod
    def day(cls, unit: QuotaUnit, amount: int, *, zone: str = "UTC") -> Self:
        """Returns a quota of at most `amount` units per calendar day. The count restarts at midnight in
        `zone`."""
        return cls(unit=unit, amount=amount, shape="day", zone=zone)

    @classmethod
    def period(cls, unit: QuotaUnit, amount: int, *, per: float) -> Self:
        """Returns a quota of at most `amount` units per period of `per` seconds. The first call starts the
        period; at its end all units are free again."""
        return cls(unit=unit, amount=amount, shape="period", per=per)

    @classmethod
    def concurrent(cls, amount: int) -> Self:
        """Returns a quota of at most `amount` calls at the same time."""
        return cls(unit="concurrent", amount=amount, shape="concurrent")

    @property
    def name(self) -> str:
        if self.shape == "concurrent":
            return "concurrent"
        window = "day" if self.shape == "day" else WINDOW_NAMES.get(self.per, f"{self.per:g} s")
        return f"{self.unit} per {window}"


def to_ticks(seconds: float) -> int:
    return round(seconds * TICKS_PER_SECOND)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SEARCH_STEP_TICKS = 15 * 60 * TICKS_PER_SECOND
"""Step of the search for the next date. Time zones change less often, and a date lasts longer."""


def local_date(zone: str, wall: int) -> int:
    """Returns the local date at `wall` as a number that grows by one per day. `wall` is in microseconds since
    1970."""
    return (EPOCH + timedelta(microseconds=wall)).astimezone(ZoneInfo(zone)).date().toordinal()


def find_next_date(zone: str, wall: int) -> int:
    """Returns the first moment after `wall` at which the local date is later. Both times are in microseconds
    since 1970."""
    today = local_date(zone, wall)
    low, high = wall, wall + SEARCH_STEP_TICKS
    while local_date(zone, high) <= today:
        low, high = high, high + SEARCH_STEP_TICKS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if local_date(zone, middle) > today else (middle, high)
    return high
