"""Numbers as people give them. True is not one, and infinity is no amount of anything."""

from __future__ import annotations

INFINITY = float("inf")
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")
_THOUSAND = 1000


def is_number(value: object, least: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return least <= value < INFINITY


def is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and is_number(value, least)


def format_bytes(count: float) -> str:
    """`4.39 MB`: decimal units, three digits, the same on pages and on the command line."""
    for unit in _BYTE_UNITS[:-1]:
        if count < _THOUSAND:
            return f"{count:.3g} {unit}"
        count /= _THOUSAND
    return f"{count:.3g} {_BYTE_UNITS[-1]}"
