"""The settings of a schedule, and the overrides of these settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, Self, TypedDict, get_args

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tidemill.core.overrides import SettingChanges
from tidemill.core.queues import DAY_SECONDS
from tidemill.core.validation import refuse_unknown_options
from tidemill.errors import ConfigurationError
from tidemill.schedules.ticks import problem_with_cron, problem_with_zone
from tidemill.times import parse_seconds, parse_time

CatchUp = Literal["skip", "once", "all"]
Overlap = Literal["skip", "allow"]
MIN_INTERVAL_SECONDS = 1.0
MAX_INTERVAL_SECONDS = 100 * 365 * DAY_SECONDS
MAX_UNIX_TIME_SECONDS = 220_000_000_000.0
"""In the year 8941: sums of such times are exact enough, and calendars end with the year 9999."""


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule: when it ticks, and what happens to missed and overlapping ticks.

    Give either `cron` or `every`. A cron expression is read in the time zone `tz` (default "UTC"). `every` is
    an interval in seconds or a timedelta; it is counted from `start`, or from when the schedule was created.
    The schedule does not tick before `start` or after `end`.

    catch_up: what missed ticks create. "skip": no job. "once", the default: one job for the latest tick.
    "all": one job each, at most 100.

    overlap: what a tick does while the last job is still live. "skip", the default: it creates no job.
    "allow": it creates a job.

    jitter: each job starts up to this many seconds after its tick, to spread the load."""

    cron: str
    tz: str
    every: float | timedelta
    start: float | datetime | None
    end: float | datetime | None
    catch_up: CatchUp
    overlap: Overlap
    jitter: float | timedelta


class ScheduleUpsertOptions(ScheduleOptions, total=False):
    """Options of a schedule that a call creates or changes.

    next_at: the time of the next tick, for a schedule with `every`. Later ticks follow every `every` seconds.
    A past time means now. The same value again changes nothing; None leaves the ticks as they are.
    """

    next_at: float | datetime | None


class ScheduleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The checked form of `ScheduleOptions`. Durations are seconds; `start` and `end` are wall times."""

    cron: str | None = None
    tz: str = "UTC"
    every: float | None = None
    start: float | None = None
    end: float | None = None
    catch_up: CatchUp = "once"
    overlap: Overlap = "skip"
    jitter: float = 0.0

    def problem(self) -> str | None:
        """Returns why the settings are invalid, naming the field; None if they are valid."""
        if (self.cron is None) == (self.every is None):
            named = "neither" if self.cron is None else "both"
            return f"cron: give either cron='0 3 * * *' or every=3600, not {named}"
        if self.cron is not None and (problem := problem_with_cron(self.cron)):
            return problem
        if self.every is not None and not self.every >= MIN_INTERVAL_SECONDS:
            return f"every: must be {MIN_INTERVAL_SECONDS:g} second or more, is {self.every:g}"
        if not self.jitter >= 0:
            return f"jitter: must be 0 seconds or more, is {self.jitter:g}"
        for field in ("every", "jitter"):
            if (seconds := getattr(self, field) or 0) > MAX_INTERVAL_SECONDS:
                return (
                    f"{field}: must be {MAX_INTERVAL_SECONDS:.0f} seconds (100 years) or less, is {seconds:g}"
                )
        return problem_with_zone(self.tz) or self._problem_with_times()

    def _problem_with_times(self) -> str | None:
        for field in ("start", "end"):
            if (time := getattr(self, field)) is not None and not 0 <= time <= MAX_UNIX_TIME_SECONDS:
                return f"{field}: must be a Unix time from 1970 to the year 8900, is {time:g}"
        if self.start is not None and self.end is not None and self.end < self.start:
            return "end: must not be before start; give a later time"
        return None


class ScheduleChanges(SettingChanges[ScheduleSettings], frozen=True, kw_only=True):
    """The settings of a schedule that an override changes. UNSET means that the declared value applies."""

    cron: str | UnsetType = UNSET
    tz: str | UnsetType = UNSET
    every: float | UnsetType = UNSET
    start: float | UnsetType | None = UNSET
    end: float | UnsetType | None = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    jitter: float | UnsetType = UNSET

    def join(self, later: Self) -> Self:
        """Returns these changes with later changes added. If `later` has a `cron` or `every`, the earlier
        `cron` and `every` are dropped."""
        earlier, added = self.given(), later.given()
        if "cron" in added or "every" in added:
            earlier = {name: value for name, value in earlier.items() if name not in ("cron", "every")}
        return self.with_values(earlier | added)

    def over(self, settings: ScheduleSettings) -> ScheduleSettings:
        """Returns `settings` with these changes. A new `cron` removes `every`, and a new `every` removes
        `cron`."""
        given = self.given()
        if ("cron" in given) != ("every" in given):
            given |= {"every": None} if "cron" in given else {"cron": None}
        return replace(settings, **given)


def read_schedule_settings(options: Mapping[str, Any]) -> ScheduleSettings:
    settings = ScheduleSettings(**read_schedule_options(options))
    if problem := settings.problem():
        raise ConfigurationError(problem)
    return settings


def read_next_at(value: Any, settings: ScheduleSettings) -> float | None:
    """Returns the option `next_at` as wall time; None if it is not given. Raises ConfigurationError if the
    value is no time, or if `settings` allow no `next_at`."""
    next_at = _read_time("next_at", value)
    if next_at is None:
        return None
    if settings.every is None:
        raise ConfigurationError("next_at: must come with every; a cron expression names its own times")
    if settings.start is not None:
        raise ConfigurationError("next_at: must come without start; both say where the interval begins")
    if not 0 <= next_at <= MAX_UNIX_TIME_SECONDS:
        raise ConfigurationError(
            f"next_at: must be a Unix time from 1970 to the year 8900, is {next_at:g}; give another time"
        )
    return next_at


def read_schedule_changes(options: Mapping[str, Any]) -> ScheduleChanges:
    if not options:
        raise ConfigurationError("name at least one setting to override, such as cron='0 4 * * *'")
    changes = ScheduleChanges(**read_schedule_options(options))
    if "cron" in options and "every" in options:
        raise ConfigurationError("cron: give either cron or every, not both")
    return changes


def read_schedule_options(options: Mapping[str, Any]) -> dict[str, Any]:
    refuse_unknown_options(options, ScheduleOptions.__annotations__, "schedule")
    return {name: _READERS[name](name, value) for name, value in options.items()}


def _read_text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{field}: must be a string, is {value!r}")
    return value


def _read_seconds(field: str, value: Any) -> float:
    return parse_seconds(field, value, ConfigurationError)


def _read_time(field: str, value: Any) -> float | None:
    return None if value is None else parse_time(field, value, ConfigurationError)


def _read_one_of(*known: str) -> Callable[[str, Any], str]:
    def read(field: str, value: Any) -> str:
        if value not in known:
            raise ConfigurationError(f"{field}: must be one of {', '.join(known)}, is {value!r}")
        return str(value)

    return read


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "cron": _read_text,
    "tz": _read_text,
    "every": _read_seconds,
    "start": _read_time,
    "end": _read_time,
    "catch_up": _read_one_of(*get_args(CatchUp)),
    "overlap": _read_one_of(*get_args(Overlap)),
    "jitter": _read_seconds,
}
