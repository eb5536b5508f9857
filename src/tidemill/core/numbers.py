"""Numbers as people give them. True is not one, and infinity is no amount of anything."""

from __future__ import annotations

INFINITY = float("inf")


def is_number(value: object, least: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return least <= value < INFINITY


def is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and is_number(value, least)
