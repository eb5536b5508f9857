"""Durations and times as people type them: callbacks of options."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import click

from tidemill.times import seconds_of


@dataclass(frozen=True)
class Instant:
    """A wall time, or one so many seconds from now."""

    seconds: float
    relative: bool

    def at(self, now: float) -> float:
        return now + self.seconds if self.relative else self.seconds


def duration(_ctx: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """`90`, `90s`, `1h30m`, `2d` → seconds."""
    if value is None:
        return None
    found = seconds_of(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a duration; write 90, 90s, 10m, 1h30m or 2d")
    return found


def moment(_ctx: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """`2026-05-01T08:00` (local) or with an offset → Unix time."""
    if value is None:
        return None
    found = _wall(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a time; write 2026-05-01T08:00 or 2026-05-01T08:00+08:00")
    return found


def instant(_ctx: click.Context, _option: click.Parameter, value: str | None) -> Instant | None:
    """A time; or `10m` for ten minutes ago, `+10m` for ten minutes from now."""
    if value is None:
        return None
    if (wall := _wall(value)) is not None:
        return Instant(wall, relative=False)
    if (seconds := seconds_of(value.removeprefix("+"))) is not None:
        return Instant(seconds if value.startswith("+") else -seconds, relative=True)
    raise click.BadParameter(
        f"{value!r} is neither a duration nor a time; write 10m or 2d (so long ago), +10m (from now) "
        "or 2026-05-01T08:00"
    )


def _wall(text: str) -> float | None:
    if "-" not in text:  # 2026 and 20260501 are dates to datetime, and seconds to everybody here
        return None
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        return None
