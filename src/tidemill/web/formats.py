"""How values are written on pages: pure functions, the filters of every template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from tidemill.core.numbers import format_bytes

_BRIEF = 24
_UNGROUPED = 1e15
_HOUR = 3600
_STEPS = ((2 * _HOUR, 60), (48 * _HOUR, 600))


def number(value: float) -> str:
    """Exact, as people group digits; of a share no more than two of them."""
    if abs(value) >= _UNGROUPED:
        return f"{value:g}"
    return f"{int(value):,}" if value == int(value) else f"{value:,.2f}"


def iso(wall: float) -> str:
    """For the script, which says it in the viewer's own zone; empty for what no calendar knows."""
    try:
        return datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return ""


def clock(wall: float) -> str:
    """For whoever has no script."""
    return iso(wall).replace("T", " ").replace("Z", " UTC") or f"Unix time {wall:g}"


def pretty(value: Any) -> str:
    """Data as people read it, on several lines. Text is left as it is written."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def percent(share: float) -> str:
    return f"{share * 100:.0f}%"


def rounded(wall: float, now: float) -> float:
    """A forecast, no finer than it is worth: the next whole minute, ten minutes or hour."""
    ahead = wall - now
    step = next((step for near, step in _STEPS if ahead < near), _HOUR)
    return -(-wall // step) * step


def points(values: Sequence[float], width: float = 100, height: float = 20) -> str:
    """Where a line through the values goes, for the points of an SVG polyline: highest at the top."""
    most = max(values, default=0) or 1
    step = width / max(len(values) - 1, 1)
    return " ".join(
        f"{index * step:.1f},{height - value / most * (height - 2) - 1:.1f}"
        for index, value in enumerate(values)
    )


def brief(name: str) -> str:
    """An id as people tell it from others: how it begins and how it ends."""
    return name if len(name) <= _BRIEF else f"{name[:10]}…{name[-8:]}"


def bare(value: float | None) -> str:
    """A number as a field takes it: no groups, no point without need, and nothing for none."""
    return "" if value is None else f"{value:.12g}"


def typed(seconds: float | None) -> str:
    """A duration as people type it, such as `1h30m`, and nothing for none."""
    if seconds is None:
        return ""
    if seconds != int(seconds):
        return f"{bare(seconds)}s"
    parts, left = [], int(seconds)
    for unit, length in (("d", 86_400), ("h", _HOUR), ("m", 60), ("s", 1)):
        many, left = divmod(left, length)
        parts.append(f"{many}{unit}" if many else "")
    return "".join(parts) or "0s"


def combined(given: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {**given, **more}


def pairs(values: Sequence[str]) -> list[tuple[str, str]]:
    """For a choice among names, each said as it is."""
    return [(value, value) for value in values]


FILTERS: Mapping[str, Callable[..., Any]] = {
    "number": number,
    "iso": iso,
    "clock": clock,
    "size": format_bytes,
    "pretty": pretty,
    "percent": percent,
    "rounded": rounded,
    "points": points,
    "bare": bare,
    "typed": typed,
    "brief": brief,
    "combined": combined,
    "pairs": pairs,
}
