"""Durations and times as people type them: callbacks of options."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


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
    found = _seconds(value)
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
    if (seconds := _seconds(value.removeprefix("+"))) is not None:
        return Instant(seconds if value.startswith("+") else -seconds, relative=True)
    raise click.BadParameter(
        f"{value!r} is neither a duration nor a time; write 10m or 2d (so long ago), +10m (from now) "
        "or 2026-05-01T08:00"
    )


def _seconds(text: str) -> float | None:
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text)
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _wall(text: str) -> float | None:
    if "-" not in text:  # 2026 and 20260501 are dates to datetime, and seconds to everybody here
        return None
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        return None
