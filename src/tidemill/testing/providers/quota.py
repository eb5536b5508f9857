"""What a simulated provider allows, as a value. Not `tidemill.Limit`: that is what a user believes of a
provider, this is what the provider does, and the two may differ on purpose."""

from __future__ import annotations

from typing import Literal, Self
from zoneinfo import ZoneInfo

import msgspec

TICKS = 1_000_000
"""Time is counted in whole microseconds, so that no sum of fractions decides about a call."""

Unit = Literal["requests", "tokens", "input_tokens", "output_tokens", "concurrent"]
Shape = Literal["rolling", "bucket", "day", "period", "concurrent"]
Units = dict[str, int]

NAMES = {1.0: "second", 60.0: "minute", 3600.0: "hour", 86_400.0: "day"}


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """per: the window in seconds (0 where there is none). zone: of a day. interval: how short a stretch
    a bucket is enforced in: 60 a minute with an interval of 1 s is one a second."""

    unit: Unit
    amount: int
    shape: Shape
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
    def rolling(cls, unit: Unit, amount: int, *, per: float = 60.0) -> Self:
        """At most so many in any stretch as long as the window."""
        return cls(unit=unit, amount=amount, shape="rolling", per=per)

    @classmethod
    def bucket(cls, unit: Unit, amount: int, *, per: float = 60.0, interval: float | None = None) -> Self:
        """Refills evenly; full, it may be spent at once."""
        return cls(unit=unit, amount=amount, shape="bucket", per=per, interval=interval)

    @classmethod
    def day(cls, unit: Unit, amount: int, *, zone: str = "UTC") -> Self:
        """Anew at local midnight."""
        return cls(unit=unit, amount=amount, shape="day", zone=zone)

    @classmethod
    def period(cls, unit: Unit, amount: int, *, per: float) -> Self:
        """The first call begins a period, and when it is over everything is there again."""
        return cls(unit=unit, amount=amount, shape="period", per=per)

    @classmethod
    def concurrent(cls, amount: int) -> Self:
        """So many under way at once."""
        return cls(unit="concurrent", amount=amount, shape="concurrent")

    @property
    def name(self) -> str:
        if self.shape == "concurrent":
            return "concurrent"
        window = "day" if self.shape == "day" else NAMES.get(self.per, f"{self.per:g} s")
        return f"{self.unit} per {window}"


def ticks(seconds: float) -> int:
    return round(seconds * TICKS)
