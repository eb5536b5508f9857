"""Numbers and times as providers write them. What is malformed is None."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

LONGEST = 366 * 86_400.0
"""A hint beyond a year is a mistake of its sender."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_PLAIN = re.compile(r"\d{1,15}(?:\.\d{1,9})?")


def number(value: Any) -> float | None:
    """A plain number of 0 or more."""
    if isinstance(value, str):
        text = value.strip()
        return float(text) if _PLAIN.fullmatch(text) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value < 1e15 else None  # noqa: PLR2004 - as above


def duration(value: Any) -> float | None:
    """`20`, `20.04s`, `6m0s`, `12ms`, or what protobuf makes of it: `{"seconds": 20, "nanos": 40000000}`."""
    if isinstance(value, dict):
        whole, nanos = number(value.get("seconds", 0)), number(value.get("nanos", 0))
        return None if whole is None or nanos is None else _bounded(whole + nanos / 1e9)
    plain = number(value)
    if plain is not None:
        return _bounded(plain)
    if not isinstance(value, str) or len(value) > 64:  # noqa: PLR2004 - no duration is so long
        return None
    text = value.strip().lower().replace(" ", "")
    parts = _PART.findall(text)
    if not parts or "".join(amount + unit for amount, unit in parts) != text:
        return None
    return _bounded(sum(float(amount) * _UNITS[unit] for amount, unit in parts))


def moment(value: Any) -> float | None:
    """RFC 3339 as a wall time; without an offset it is UTC."""
    if not isinstance(value, str) or len(value) > 64:  # noqa: PLR2004 - as above
        return None
    try:
        parsed = datetime.fromisoformat(value.strip())
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def http_date(value: Any) -> float | None:
    if not isinstance(value, str) or len(value) > 64:  # noqa: PLR2004 - as above
        return None
    try:
        parsed = parsedate_to_datetime(value.strip())
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, OSError, IndexError):
        return None


def _bounded(seconds: float) -> float:
    return min(seconds, LONGEST)
