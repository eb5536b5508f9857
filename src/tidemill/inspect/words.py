"""Durations and times in sentences people read."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

import msgspec

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))

_UNTOLD = 1e12
"""Tens of thousands of years: as days they would fill the line with digits."""


class Times(msgspec.Struct, frozen=True):
    """Says when something is, both as seen from `now` and on the clock on the wall of `zone`: one is
    understood at a glance, the other can be compared with a log. None is the machine's own zone."""

    now: float
    zone: tzinfo | None

    def at(self, wall: float) -> str:
        """With its offset: a time without one is read as somebody else's."""
        try:
            local = datetime.fromtimestamp(wall, UTC).astimezone(self.zone)
        except (OverflowError, ValueError, OSError):
            return f"Unix time {wall:g}"  # `at` takes any number, a calendar does not
        offset = local.strftime("%z")
        named = "UTC" if offset == "+0000" else f"UTC{offset[:3]}:{offset[3:5]}"
        return f"{local:%Y-%m-%d %H:%M:%S} {named}"

    def ahead(self, wall: float) -> str:
        return f"in {duration(wall - self.now)}, at {self.at(wall)}"

    def past(self, wall: float) -> str:
        return f"{duration(self.now - wall)} ago, at {self.at(wall)}"


def duration(seconds: float) -> str:
    """The two largest units: `3 min 20 s`, `2 d 4 h`, `0.4 s`."""
    if seconds < 1:
        return f"{max(seconds, 0.0):.1f} s"
    if seconds >= _UNTOLD:
        return f"{seconds:g} s"
    left, parts = int(seconds), []
    for size, unit in _UNITS:
        parts.append(f"{left // size} {unit}" if left >= size else "")
        left %= size
    first = next(index for index, part in enumerate(parts) if part)
    return " ".join(part for part in parts[first : first + 2] if part)


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def quantity(amount: float, units: str) -> str:
    """`10 requests per minute`, `1 request per minute`: of what a limit or a unit is called."""
    unit, space, rest = units.partition(" ")
    if amount == 1:
        unit = unit.removesuffix("s")
    return f"{amount:.12g} {unit}{space}{rest}"


def full_stop(text: str) -> str:
    """Somebody else's words as the end of a sentence, on one line."""
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?", "。")) else f"{text}."
