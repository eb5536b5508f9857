"""Schedules as people read them."""

from __future__ import annotations

from typing import Any

from tidemill.cli.output import moment
from tidemill.inspect.words import duration
from tidemill.schedules.schedule import Outcome, Past
from tidemill.schedules.settings import ScheduleOverride, Settings
from tidemill.schedules.views import ScheduleView


def rule(settings: Settings) -> str:
    """`0 3 * * * Asia/Shanghai`, `every 1 h`."""
    if settings.every is not None:
        return f"every {duration(settings.every)}"
    return f"{settings.cron} {settings.tz}"


def state(view: ScheduleView) -> str:
    """With what a person did to it."""
    said = str(view.state)
    if view.pause is not None:
        said += f" until {moment(view.pause.until)}" if view.pause.until else ""
        said += f" ({view.pause.reason})" if view.pause.reason else ""
    return f"{said} (override)" if view.override is not None else said


def last(view: ScheduleView) -> str:
    return past(view.history[-1]) if view.history else ""


def past(one: Past) -> str:
    """`2026-05-01 03:00:00 UTC fired`, with how many were missed."""
    return f"{moment(one.tick)} {outcome(one)}"


def outcome(one: Past) -> str:
    return f"{one.count} missed" if one.outcome is Outcome.MISSED else str(one.outcome)


def overridden(override: ScheduleOverride) -> str:
    """`cron=0 4 * * * by ann@host since …, until …: why`."""
    given = " ".join(f"{name}={written(name, value)}" for name, value in override.changes.given().items())
    end = "" if override.until is None else f", until {moment(override.until)}"
    why = f": {override.reason}" if override.reason else ""
    return f"{given} by {override.by} since {moment(override.since)}{end}{why}"


def written(name: str, value: Any) -> str:
    if value is None:
        return "none"
    return (
        moment(value)
        if name in ("start", "end")
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
