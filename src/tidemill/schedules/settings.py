"""What can be set on a schedule, and what a person puts over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, get_args

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tidemill.core.names import is_storable, refuse_unknown
from tidemill.core.queues import DAY
from tidemill.errors import ConfigurationError
from tidemill.schedules.ticks import problem_with_cron, problem_with_zone
from tidemill.times import read_seconds, read_time

CatchUp = Literal["skip", "once", "all"]
Overlap = Literal["skip", "allow"]
SHORTEST = 1.0
LONGEST = 100 * 365 * DAY
LATEST = 220_000_000_000.0
"""In the year 8941: sums of such times are exact enough, and calendars end with the year 9999."""


class ScheduleOptions(TypedDict, total=False):
    """Either `cron`, read in the zone `tz` ("UTC"), or `every`: seconds or a timedelta, counted from `start`,
    or from when the schedule was made. Nothing ticks before `start` or after `end`.
    catch_up: ticks nobody was there for are left out ("skip"), stood for by the latest ("once", the default),
    or each have their job ("all", 100 at most).
    overlap: a tick makes no job while the last one is live ("skip", the default), or does ("allow").
    jitter: a job starts up to so many seconds after its tick."""

    cron: str
    tz: str
    every: float | timedelta
    start: float | datetime | None
    end: float | datetime | None
    catch_up: CatchUp
    overlap: Overlap
    jitter: float | timedelta


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """As `ScheduleOptions`, checked: durations are seconds, times wall times."""

    cron: str | None = None
    tz: str = "UTC"
    every: float | None = None
    start: float | None = None
    end: float | None = None
    catch_up: CatchUp = "once"
    overlap: Overlap = "skip"
    jitter: float = 0.0

    def problem(self) -> str | None:
        """Why it cannot tick, naming the field."""
        if (self.cron is None) == (self.every is None):
            given = "neither" if self.cron is None else "both"
            return f"cron: give either cron='0 3 * * *' or every=3600, not {given}"
        if self.cron is not None and (problem := problem_with_cron(self.cron)):
            return problem
        if self.every is not None and not self.every >= SHORTEST:
            return f"every: must be {SHORTEST:g} second or more, is {self.every:g}"
        if not self.jitter >= 0:
            return f"jitter: must be 0 seconds or more, is {self.jitter:g}"
        for field in ("every", "jitter"):
            if (seconds := getattr(self, field) or 0) > LONGEST:
                return f"{field}: must be {LONGEST:.0f} seconds (100 years) or less, is {seconds:g}"
        return problem_with_zone(self.tz) or self._problem_with_times()

    def _problem_with_times(self) -> str | None:
        for field in ("start", "end"):
            if (time := getattr(self, field)) is not None and not 0 <= time <= LATEST:
                return f"{field}: must be a Unix time from 1970 to the year 8900, is {time:g}"
        if self.start is not None and self.end is not None and self.end < self.start:
            return "end: must not be before start; give a later time"
        return None


class ScheduleChanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some of a schedule's settings, to be put over the others."""

    cron: str | UnsetType = UNSET
    tz: str | UnsetType = UNSET
    every: float | UnsetType = UNSET
    start: float | UnsetType | None = UNSET
    end: float | UnsetType | None = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    jitter: float | UnsetType = UNSET

    def given(self) -> dict[str, Any]:
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}

    def over(self, settings: Settings) -> Settings:
        """Of cron and every the one that was put over it takes the other's place."""
        given = self.given()
        if ("cron" in given) != ("every" in given):
            given |= {"every": None} if "cron" in given else {"cron": None}
        return replace(settings, **given)


class ScheduleOverride(msgspec.Struct, frozen=True, kw_only=True):
    """As `core.queues.Override`: who, why, since when and until when (wall times)."""

    changes: ScheduleChanges
    by: str
    reason: str | None = None
    since: float
    until: float | None = None

    def holds(self, now: float) -> bool:
        return self.until is None or now < self.until

    def problem(self, settings: Settings) -> str | None:
        for field in ("by", "reason"):
            if (text := getattr(self, field)) is not None and not is_storable(text):
                return f"{field}: must be text without NUL characters or lone surrogates"
        return (
            "by: must say who overrides, is empty" if not self.by else self.changes.over(settings).problem()
        )


def overridden(  # noqa: PLR0917 - as `core.queues.overridden`
    before: ScheduleOverride | None,
    now: float,
    changes: ScheduleChanges,
    by: str,
    reason: str | None,
    until: float | UnsetType | None,
) -> ScheduleOverride:
    """New changes join those of the override that holds; its end stays unless another is given."""
    held = before if before is not None and before.holds(now) else None
    if isinstance(until, UnsetType):
        until = None if held is None else held.until
    kept = {} if held is None else held.changes.given()
    if "cron" in changes.given() or "every" in changes.given():
        kept = {name: value for name, value in kept.items() if name not in ("cron", "every")}
    joined = ScheduleChanges(**kept | changes.given())
    return ScheduleOverride(changes=joined, by=by, reason=reason, since=now, until=until)


def without(before: ScheduleOverride | None, names: Sequence[str]) -> ScheduleOverride | None:
    """The named settings follow the code again, without names all of them."""
    if before is None:
        return None
    left = {name: value for name, value in before.changes.given().items() if names and name not in names}
    return replace(before, changes=ScheduleChanges(**left)) if left else None


def read_settings(options: Mapping[str, Any]) -> Settings:
    settings = Settings(**read_options(options))
    if problem := settings.problem():
        raise ConfigurationError(problem)
    return settings


def read_changes(options: Mapping[str, Any]) -> ScheduleChanges:
    if not options:
        raise ConfigurationError("name at least one setting to override, such as cron='0 4 * * *'")
    changes = ScheduleChanges(**read_options(options))
    if "cron" in options and "every" in options:
        raise ConfigurationError("cron: give either cron or every, not both")
    return changes


def read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    refuse_unknown(options, ScheduleOptions.__annotations__, "schedule")
    return {name: _READERS[name](name, value) for name, value in options.items()}


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{field}: must be a string, is {value!r}")
    return value


def _seconds(field: str, value: Any) -> float:
    return read_seconds(field, value, ConfigurationError)


def _time(field: str, value: Any) -> float | None:
    return None if value is None else read_time(field, value, ConfigurationError)


def _one_of(*known: str) -> Callable[[str, Any], str]:
    def read(field: str, value: Any) -> str:
        if value not in known:
            raise ConfigurationError(f"{field}: must be one of {', '.join(known)}, is {value!r}")
        return str(value)

    return read


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "cron": _text,
    "tz": _text,
    "every": _seconds,
    "start": _time,
    "end": _time,
    "catch_up": _one_of(*get_args(CatchUp)),
    "overlap": _one_of(*get_args(Overlap)),
    "jitter": _seconds,
}
