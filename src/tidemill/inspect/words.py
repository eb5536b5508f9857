"""Durations and times in sentences people read."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))


def duration(seconds: float) -> str:
    """The two largest units: `3 min 20 s`, `2 d 4 h`, `0.4 s`."""
    if seconds < 1:
        return f"{max(seconds, 0.0):.1f} s"
    left, parts = int(seconds), []
    for size, unit in _UNITS:
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    if left:
        parts.append(f"{left} s")
    return " ".join(parts[:2])


def moment(wall: float, zone: tzinfo | None) -> str:
    """With its offset: a time without one is read as somebody else's. `zone` None is the machine's."""
    try:
        local = datetime.fromtimestamp(wall, UTC).astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return f"Unix time {wall:g}"  # `at` takes any number, a calendar does not
    offset = local.strftime("%z")
    named = "UTC" if offset == "+0000" else f"UTC{offset[:3]}:{offset[3:5]}"
    return f"{local:%Y-%m-%d %H:%M:%S} {named}"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}".replace(",", " ")
