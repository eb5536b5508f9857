"""Lists of values for a statement about many rows: to look at every value takes the client most time."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def shared(column: list[T]) -> list[T]:
    """What all have in common is sent once: the statement takes the first for those behind the end."""
    return column[:1] if column.count(column[0]) == len(column) else column


def given(column: list[T | None]) -> list[T | None]:
    """A column in which there is nothing is not sent: `unnest` fills it up."""
    return [] if column.count(None) == len(column) else column
