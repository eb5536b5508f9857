"""Durations and moments as a program or a person may give them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.errors import TidemillError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def in_seconds(value: float | timedelta) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else value


def read_seconds(field: str, value: Any, refusal: type[TidemillError]) -> float:
    value = in_seconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refusal(f"{field}: must be a number of seconds or a timedelta, is {value!r}")
    return float(value)


def read_time(field: str, value: Any, refusal: type[TidemillError]) -> float:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise refusal(
                f"{field}: a datetime needs a time zone, {value.isoformat()} has none; "
                "write datetime(…, tzinfo=ZoneInfo('Asia/Shanghai')) or datetime.now(UTC)"
            )
        return value.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refusal(f"{field}: must be a Unix time or a datetime with a time zone, is {value!r}")
    return float(value)


def seconds_of(text: str) -> float | None:
    """`90`, `90s`, `1h30m`, `2d`: as people type it. None when it is no duration."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text)
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
