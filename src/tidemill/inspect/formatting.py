"""Formats durations, times and quantities for sentences."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

import msgspec

_DURATION_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))

_MAX_SPLIT_SECONDS = 1e12
"""Tens of thousands of years; split into days they would fill the line with digits."""


class TimeFormatter(msgspec.Struct, frozen=True):
    """Formats a time relative to `now`, and as clock time in `zone` (None: the machine's zone)."""

    now: float
    zone: tzinfo | None

    def clock_time(self, wall: float) -> str:
        """Returns the clock time with its UTC offset."""
        try:
            local = datetime.fromtimestamp(wall, UTC).astimezone(self.zone)
        except (OverflowError, ValueError, OSError):
            return f"Unix time {wall:g}"  # the number may lie outside the calendar
        offset = local.strftime("%z")
        named = "UTC" if offset == "+0000" else f"UTC{offset[:3]}:{offset[3:5]}"
        return f"{local:%Y-%m-%d %H:%M:%S} {named}"

    def in_future(self, wall: float) -> str:
        return f"in {format_duration(wall - self.now)}, at {self.clock_time(wall)}"

    def in_past(self, wall: float) -> str:
        return f"{format_duration(self.now - wall)} ago, at {self.clock_time(wall)}"


def format_duration(seconds: float) -> str:
    """Returns seconds as text, with the two largest units: `3 min 20 s`, `2 d 4 h`, `0.4 s`."""
    if seconds < 1:
        return f"{max(seconds, 0.0):.1f} s"
    if seconds >= _MAX_SPLIT_SECONDS:
        return f"{seconds:g} s"
    left, parts = int(seconds), []
    for size, unit in _DURATION_UNITS:
        parts.append(f"{left // size} {unit}" if left >= size else "")
        left %= size
    first = next(index for index, part in enumerate(parts) if part)
    return " ".join(part for part in parts[first : first + 2] if part)


def pluralize(count: int, singular: str, plural_form: str | None = None) -> str:
    return f"{count} {singular if count == 1 else plural_form or singular + 's'}"


def format_quantity(amount: float, units: str) -> str:
    """Returns an amount with its unit as text: `10 requests per minute`, `1 request per minute`. `units` is a
    unit or the name of a limit."""
    unit, space, rest = units.partition(" ")
    if amount == 1:
        unit = unit.removesuffix("s")
    return f"{amount:.12g} {unit}{space}{rest}"


def format_spacing(seconds: float) -> str:
    """Returns the time between two calls as text: `one call per 64 s`."""
    return f"one call per {round(seconds, 1):.12g} s"


def as_sentence(text: str) -> str:
    """Returns text from another source, such as an error message, on one line. Adds a full stop if the text
    does not end like a sentence."""
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?", "。")) else f"{text}."
