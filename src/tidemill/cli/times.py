"""Durations and times as people type them: callbacks of options."""

from __future__ import annotations

import re
from datetime import datetime

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def duration(_ctx: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """`90`, `90s`, `1h30m`, `2d` → seconds."""
    if value is None:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise click.BadParameter(f"{value!r} is not a duration; write 90, 90s, 10m, 1h30m or 2d")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def moment(_ctx: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """`2026-05-01T08:00` (local) or with an offset → Unix time."""
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is not a time; write 2026-05-01T08:00 or 2026-05-01T08:00+08:00"
        ) from None
