"""Option types and shared options: whole numbers, durations, times, worker and log options."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from tidemill.times import parse_duration


class WholeNumber(click.IntRange):
    """Option type for a whole number from `minimum` to `maximum`. Its error message says which numbers are
    accepted."""

    name = "number"

    def __init__(self, minimum: int, maximum: int | None = None) -> None:
        super().__init__(min=minimum, max=maximum)
        self._accepted = f"of {minimum} or more" if maximum is None else f"from {minimum} to {maximum}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"must be a whole number {self._accepted}, is {value!r}", param, ctx)


@dataclass(frozen=True)
class TimeOption:
    """A time that the user typed. `relative=True`: `seconds` counts from now and is negative in the past.
    `relative=False`: `seconds` is a wall time."""

    seconds: float
    relative: bool

    def at(self, now: float) -> float:
        return now + self.seconds if self.relative else self.seconds


def parse_duration_option(_ctx: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """Returns the seconds of a duration such as `90`, `90s`, `1h30m` or `2d`. None if the option is not
    given."""
    if value is None:
        return None
    found = parse_duration(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a duration; write 90, 90s, 10m, 1h30m or 2d")
    return found


def parse_time(_ctx: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """Returns the Unix time of a text such as `2026-05-01T08:00`. The text is local time unless it has an
    offset. None if the option is not given."""
    if value is None:
        return None
    found = _parse_wall_time(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a time; write 2026-05-01T08:00 or 2026-05-01T08:00+08:00")
    return found


def parse_time_or_age(_ctx: click.Context, _option: click.Parameter, value: str | None) -> TimeOption | None:
    """Returns a time, given as a date and time or relative to now. `10m` is ten minutes ago, `+10m` is ten
    minutes from now. None if the option is not given."""
    if value is None:
        return None
    if (wall := _parse_wall_time(value)) is not None:
        return TimeOption(wall, relative=False)
    if (seconds := parse_duration(value.removeprefix("+"))) is not None:
        return TimeOption(seconds if value.startswith("+") else -seconds, relative=True)
    raise click.BadParameter(
        f"{value!r} is neither a duration nor a time; write 10m or 2d (so long ago), +10m (from now) "
        "or 2026-05-01T08:00"
    )


def _parse_wall_time(text: str) -> float | None:
    if "-" not in text:  # datetime parses 2026 and 20260501 as dates, but here they are seconds
        return None
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        return None


def parse_weights(
    _ctx: click.Context, _option: click.Parameter, value: str | None
) -> dict[str, int | None] | None:
    """Returns {"feeds": 5, "mail": None} for the text `feeds=5,mail`; None if the option is not given."""
    if value is None:
        return None
    found: dict[str, int | None] = {}
    for part in filter(None, (piece.strip() for piece in value.split(","))):
        name, separator, weight = part.partition("=")
        if not name or (separator and not weight.isdecimal()) or weight == "0":
            raise click.BadParameter(f"{part!r} is not NAME or NAME=WEIGHT with a whole weight of 1 or more")
        found[name] = int(weight) if separator else None
    if not found:
        raise click.BadParameter("names no queue; write a,b or a=10,b")
    return found


_WORKER_OPTIONS = (
    click.option(
        "--queues",
        callback=parse_weights,
        metavar="NAME[=WEIGHT],…",
        help="The queues to serve, with weights: a=10,b. Default: all queues of the application.",
    ),
    click.option("--concurrency", type=WholeNumber(1), help="Concurrent jobs in each process. Default: 10."),
    click.option(
        "--strict", is_flag=True, default=None, help="Serve queues in the given order, not by weight."
    ),
    click.option(
        "--grace",
        callback=parse_duration_option,
        metavar="DURATION",
        help="How long running jobs may finish after SIGTERM. Default: 30s.",
    ),
    click.option("--threads", type=WholeNumber(1), help="Concurrent sync handlers. Default: --concurrency."),
    click.option(
        "--until-idle",
        is_flag=True,
        default=None,
        help="Stop when no job is ready or running here; scheduled jobs and retries that are not due stay.",
    ),
)


def with_worker_options(log_format: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that adds the options that `worker` and `up` share. `log_format` is the name of the
    default log format; it is only shown in the help text."""
    return lambda command: functools.reduce(
        lambda decorated, option: option(decorated),
        reversed(_WORKER_OPTIONS),
        with_log_options(log_format)(command),
    )


def with_log_options(log_format: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that adds --json, --log-format and --log-level to a command. `log_format` is the
    name of the default log format; it is only shown in the help text."""
    options = (
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print a JSON line for each start and stop. The log is JSON, too.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(["auto", "json", "console"]),
            help=f"auto is json unless stderr is a terminal. Default: {log_format}; json with --json.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            help="The lowest level to log. Default: info.",
        ),
    )
    return lambda command: functools.reduce(
        lambda decorated, option: option(decorated), reversed(options), command
    )
