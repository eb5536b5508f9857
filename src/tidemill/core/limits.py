"""Limits: an amount of units per window."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, Self, get_args

import msgspec

from tidemill.core.calendars import Calendar, Day, Month, Week
from tidemill.core.needs import IMPLIED
from tidemill.core.validation import is_number
from tidemill.errors import ConfigurationError

WINDOW_SECONDS_BY_NAME = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
Per = Literal["second", "minute", "hour"] | float | Calendar
"""A window by name or in seconds, or a day, week or month of the provider's zone."""
_CALENDARS = (Day, Week, Month)
Charge = Literal["actual", "reserved", "completed"]
ShapeName = Literal["rolling", "bucket", "paced"]


class Shape(StrEnum):
    """How a provider counts a window.

    - `rolling`: in every time span of the window's length, at most the amount is used.
    - `bucket`: the amount refills evenly, and a full bucket may be used at once.
    - `paced`: how the provider counts is unknown. Calls are spread evenly, and the rolling rule applies too.
    """

    ROLLING = "rolling"
    BUCKET = "bucket"
    PACED = "paced"


class Limit(msgspec.Struct, frozen=True):
    """An amount of units per window. `per` is a window in seconds, a calendar period, or None for a limit on
    concurrency.

    `charge` says what a call costs in the end, and when the provider counts it:

    - "actual": the units that the call really used, counted when the request arrives (tokens sent). Unused
      units are returned.
    - "completed": the units that the call really used, counted when the answer is complete (its tokens).
      Tidemill holds the units during the call.
    - "reserved": exactly the reserved units, for providers that count what a call asks for (`max_tokens`)."""

    unit: str
    amount: float
    per: float | Calendar | None = None
    shape: Shape = Shape.ROLLING
    charge: Charge = "actual"

    def __post_init__(self) -> None:
        if problem := self.problem():
            raise ConfigurationError(problem)

    @classmethod
    def of(
        cls, unit: str, amount: float, *, per: Per, shape: ShapeName = "rolling", charge: Charge = "actual"
    ) -> Self:
        """Returns a limit in any unit: `Limit.of("pages", 300, per="hour")`. `per` is "second", "minute",
        "hour", a number of seconds, or `Day`, `Week` or `Month` with the provider's time zone. `shape` says
        how a window in seconds is counted. `charge` is explained at `Limit`."""
        if shape not in tuple(Shape):
            raise ConfigurationError(f"shape: must be one of {', '.join(Shape)}, is {shape!r}")
        return cls(unit, amount, _parse_window(per), Shape(shape), charge)

    @classmethod
    def concurrent(cls, amount: int) -> Self:
        """Returns a limit on the number of concurrent calls."""
        return cls("concurrent", amount)

    @classmethod
    def requests(
        cls, amount: float, *, per: Per, shape: ShapeName = "rolling", charge: Charge = "actual"
    ) -> Self:
        """Returns a limit on requests: `Limit.requests(10, per="minute")`. A call is one request unless its
        cost states another number. If the provider counts calendar days, write
        `per=Day("America/Los_Angeles")`. `shape` says how a window in seconds is counted."""
        return cls.of("requests", amount, per=per, shape=shape, charge=charge)

    @classmethod
    def jobs(
        cls, amount: float, *, per: Per, shape: ShapeName = "rolling", charge: Charge = "actual"
    ) -> Self:
        """Returns a limit on jobs. A batch has several jobs in one request."""
        return cls.of("jobs", amount, per=per, shape=shape, charge=charge)

    @classmethod
    def tokens(
        cls, amount: float, *, per: Per, shape: ShapeName = "rolling", charge: Charge = "actual"
    ) -> Self:
        """Returns a limit on tokens. A task's `cost` says how many tokens a call may take. `charge` says when
        the provider counts them, and whether unused tokens are returned."""
        return cls.of("tokens", amount, per=per, shape=shape, charge=charge)

    @classmethod
    def characters(
        cls, amount: float, *, per: Per, shape: ShapeName = "rolling", charge: Charge = "actual"
    ) -> Self:
        """Returns a limit on characters, as translation and speech providers count them. The options are
        those of `tokens`."""
        return cls.of("characters", amount, per=per, shape=shape, charge=charge)

    @classmethod
    def seconds(
        cls, amount: float, *, per: Per, shape: ShapeName = "rolling", charge: Charge = "actual"
    ) -> Self:
        """Returns a limit on seconds of audio or video. The options are those of `tokens`."""
        return cls.of("seconds", amount, per=per, shape=shape, charge=charge)

    @classmethod
    def usd(cls, amount: float, *, per: Per, shape: ShapeName = "rolling", charge: Charge = "actual") -> Self:
        """Returns a limit on dollars: `Limit.usd(20, per=Day("UTC"))`. The options are those of `tokens`."""
        return cls.of("usd", amount, per=per, shape=shape, charge=charge)

    @property
    def held(self) -> bool:
        """True if the units of a call count in the window only from the end of the call. Until then they are
        reserved separately (`PoolState.held`)."""
        if self.per is None or self.unit in IMPLIED or self.charge == "reserved":
            return False
        return self.charge == "completed" or self.shape is Shape.BUCKET

    @property
    def name(self) -> str:
        """The name of the limit, for people and as a key: `requests per minute`."""
        return _limit_name(self.unit, self.per)

    def problem(self) -> str | None:
        if self.charge not in get_args(Charge):
            return f"charge: must be one of {', '.join(get_args(Charge))}, is {self.charge!r}"
        if not isinstance(self.unit, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,31}", self.unit):
            return f"unit: must be a word of small letters, such as requests or tokens, is {self.unit!r}"
        if not is_number(self.amount, 0) or not self.amount:
            return f"amount: must be a number above 0, is {self.amount!r}; close the pool to allow nothing"
        if isinstance(self.per, Calendar):
            return self.per.problem()
        if self.per is not None and not (math.isfinite(self.per) and self.per > 0):
            return f"per: must be above 0 seconds, is {self.per}"
        return None


class SpacedLimit(Limit, frozen=True):
    """A limit with a learned spacing (`core.learned_spacings`). Its window has `spacing` seconds, which is
    longer than the declared window `per`. It is never stored."""

    spacing: float = 0.0


@lru_cache(maxsize=1024)
def _limit_name(unit: str, per: float | Calendar | None) -> str:
    """Returns the name of a limit, such as `requests per minute`. The result is cached, because one claimed
    job asks for names fifteen times."""
    if per is None:
        return f"{unit} at once" if unit != "concurrent" else "calls at once"
    if isinstance(per, Calendar):
        return f"{unit} per {per.every}"
    named = next((name for name, seconds in WINDOW_SECONDS_BY_NAME.items() if seconds == per), None)
    return f"{unit} per {named or f'{per:g} s'}"


def _parse_window(per: Any) -> float | Calendar:
    if isinstance(per, Calendar):
        return per
    if isinstance(per, str):
        if per in WINDOW_SECONDS_BY_NAME:
            return WINDOW_SECONDS_BY_NAME[per]
        remedy = (
            f"write one of {', '.join(WINDOW_SECONDS_BY_NAME)}, seconds, or Day, Week or Month with a zone"
        )
        if per in ("day", "week", "month"):
            remedy = f"say in which zone it begins: per={per.title()}('America/Los_Angeles')"
        raise ConfigurationError(f"per: {per!r} is not a window; {remedy}")
    if per in _CALENDARS:
        zone = f"{per.__name__}('America/Los_Angeles')"
        raise ConfigurationError(f"per: say in which zone it begins: per={zone}")
    if isinstance(per, bool) or not isinstance(per, int | float):
        raise ConfigurationError(f"per: must be a name, seconds or a calendar, is {per!r}")
    return float(per)


def window_seconds(limit: Limit) -> float:
    """Returns the length of the limit's window. The window must be measured in seconds, not by a calendar."""
    assert isinstance(limit.per, float)  # noqa: S101 - a window only gets its own limit
    return limit.spacing if isinstance(limit, SpacedLimit) else limit.per


def window_calendar(limit: Limit) -> Calendar:
    assert isinstance(limit.per, Calendar)  # noqa: S101 - as above
    return limit.per
