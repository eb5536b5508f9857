"""Parses durations and times."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UnsetType

if TYPE_CHECKING:
    from tidemill.errors import TidemillError


NoEnd = TypeVar("NoEnd", bound=UnsetType | None)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def to_seconds(value: float | timedelta) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else value


def parse_seconds(field: str, value: Any, refusal: type[TidemillError]) -> float:
    value = to_seconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refusal(f"{field}: must be a number of seconds or a timedelta, is {value!r}")
    return float(value)


def parse_time(field: str, value: Any, refusal: type[TidemillError]) -> float:
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


def parse_end(value: float | datetime | NoEnd, now: float, refusal: type[TidemillError]) -> float | NoEnd:
    """Returns `value`, the end of a pause, closure or override, as wall time. Raises the error class
    `refusal` if the end is not after `now`. None and UNSET are returned unchanged."""
    if value is None or isinstance(value, UnsetType):
        return value
    end = parse_time("until", value, refusal)
    if not end > now:
        raise refusal(f"until: must be in the future, is {now - end:.0f} s ago; give a later time")
    return end


def parse_duration(text: str) -> float | None:
    """Returns the seconds of a duration such as `90`, `90s`, `1h30m` or `2d`; None if the text is not a
    duration."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text)
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
