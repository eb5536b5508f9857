"""What a provider allows: so many units per window."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, Self, get_args

import msgspec

from tidemill.core.calendars import Calendar, Day, Month, Week
from tidemill.core.numbers import is_number
from tidemill.core.units import IMPLIED
from tidemill.errors import ConfigurationError

NAMED = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
Per = Literal["second", "minute", "hour"] | float | Calendar
"""A window by name or in seconds, or a day, week or month of the provider's zone."""
_CALENDARS = (Day, Week, Month)
Charge = Literal["actual", "reserved", "completed"]
Shapes = Literal["rolling", "bucket", "paced"]


class Shape(StrEnum):
    """How a provider lets a window go by.

    rolling: any stretch as long as the window holds at most the amount.
    bucket: it refills evenly, and a full one may be spent at once.
    paced: nobody knows, so calls are spread evenly, and rolling holds too.
    """

    ROLLING = "rolling"
    BUCKET = "bucket"
    PACED = "paced"


class Limit(msgspec.Struct, frozen=True):
    """`per` is a window in seconds, a calendar period, or None: so many at once.

    charge: what a call costs in the end, and when the provider counts it.
    "actual": what it really used, counted when it arrives, such as the tokens that are sent. The rest of
        what was set aside is given back.
    "completed": what it really used, counted by the time the answer is complete, such as the tokens that
        are generated. Until then it is held, and only then it begins to pass.
    "reserved": what was set aside for it, no less and no more, for providers that count what a call asks
        for (`max_tokens`) and not what becomes of it.
    """

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
        cls, unit: str, amount: float, *, per: Per, shape: Shapes = "rolling", charge: Charge = "actual"
    ) -> Self:
        """In any unit: `Limit.of("pages", 300, per="hour")`. `per` is "second", "minute", "hour", any number
        of seconds, or `Day`, `Week` or `Month` with the zone in which the provider's begin."""
        if shape not in tuple(Shape):
            raise ConfigurationError(f"shape: must be one of {', '.join(Shape)}, is {shape!r}")
        return cls(unit, amount, _window(per), Shape(shape), charge)

    @classmethod
    def concurrent(cls, amount: int) -> Self:
        """So many calls under way at once."""
        return cls("concurrent", amount)

    @classmethod
    def requests(
        cls, amount: float, *, per: Per, shape: Shapes = "rolling", charge: Charge = "actual"
    ) -> Self:
        """Calls, one each unless a cost says otherwise. `Limit.requests(10, per="minute")`, or
        `per=Day("America/Los_Angeles")` where a provider counts by the calendar. `shape` is how a window of
        seconds goes by."""
        return cls.of("requests", amount, per=per, shape=shape, charge=charge)

    @classmethod
    def jobs(cls, amount: float, *, per: Per, shape: Shapes = "rolling", charge: Charge = "actual") -> Self:
        """Jobs, of which a batch has several in one request."""
        return cls.of("jobs", amount, per=per, shape=shape, charge=charge)

    @classmethod
    def tokens(cls, amount: float, *, per: Per, shape: Shapes = "rolling", charge: Charge = "actual") -> Self:
        """Tokens. A task says how many a call may take (`cost`), and `charge` when the provider counts them
        and whether what was not used comes back."""
        return cls.of("tokens", amount, per=per, shape=shape, charge=charge)

    @classmethod
    def characters(
        cls, amount: float, *, per: Per, shape: Shapes = "rolling", charge: Charge = "actual"
    ) -> Self:
        """Characters, as translators and voices are metered. As tokens."""
        return cls.of("characters", amount, per=per, shape=shape, charge=charge)

    @classmethod
    def seconds(
        cls, amount: float, *, per: Per, shape: Shapes = "rolling", charge: Charge = "actual"
    ) -> Self:
        """Seconds of audio or video. As tokens."""
        return cls.of("seconds", amount, per=per, shape=shape, charge=charge)

    @classmethod
    def usd(cls, amount: float, *, per: Per, shape: Shapes = "rolling", charge: Charge = "actual") -> Self:
        """A budget in dollars: `Limit.usd(20, per=Day("UTC"))`. As tokens."""
        return cls.of("usd", amount, per=per, shape=shape, charge=charge)

    @property
    def held(self) -> bool:
        """Whether units are held while a call is under way, and are entered when it has ended. A bucket has
        to: what comes back to it late cannot be told from what has flowed in since."""
        if self.per is None or self.unit in IMPLIED or self.charge == "reserved":
            return False
        return self.charge == "completed" or self.shape is Shape.BUCKET

    @property
    def name(self) -> str:
        """`requests per minute`: how people and explanations speak of it."""
        return _named(self.unit, self.per)

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


@lru_cache(maxsize=1024)
def _named(unit: str, per: float | Calendar | None) -> str:
    """Kept, because accounts go by these names: a claimed job asks fifteen times."""
    if per is None:
        return f"{unit} at once" if unit != "concurrent" else "calls at once"
    if isinstance(per, Calendar):
        return f"{unit} per {per.every}"
    named = next((name for name, seconds in NAMED.items() if seconds == per), None)
    return f"{unit} per {named or f'{per:g} s'}"


def _window(per: Any) -> float | Calendar:
    if isinstance(per, Calendar):
        return per
    if isinstance(per, str):
        if per in NAMED:
            return NAMED[per]
        remedy = f"write one of {', '.join(NAMED)}, seconds, or Day, Week or Month with a zone"
        if per in ("day", "week", "month"):
            remedy = f"say in which zone it begins: per={per.title()}('America/Los_Angeles')"
        raise ConfigurationError(f"per: {per!r} is not a window; {remedy}")
    if per in _CALENDARS:
        zone = f"{per.__name__}('America/Los_Angeles')"
        raise ConfigurationError(f"per: say in which zone it begins: per={zone}")
    if isinstance(per, bool) or not isinstance(per, int | float):
        raise ConfigurationError(f"per: must be a name, seconds or a calendar, is {per!r}")
    return float(per)


def seconds_of(limit: Limit) -> float:
    """The window of a limit that has one in seconds."""
    assert isinstance(limit.per, float)  # noqa: S101 - a window is only ever asked about its own limit
    return limit.per


def calendar_of(limit: Limit) -> Calendar:
    assert isinstance(limit.per, Calendar)  # noqa: S101 - as above
    return limit.per
