"""Lists of values for a statement about many rows: to look at every value takes the client most time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def shared(column: list[T]) -> list[T]:
    """What all have in common is sent once: the statement takes the first for those behind the end."""
    return column[:1] if column.count(column[0]) == len(column) else column


def given(column: list[T | None]) -> list[T | None]:
    """A column in which there is nothing is not sent: `unnest` fills it up."""
    return [] if column.count(None) == len(column) else column


def words(column: Iterable[object]) -> list[str | None]:
    """Numbers are sent as text, and so are they answered: of lists of anything else asyncpg asks the server
    what they are made of, anew on every connection, and that takes longer than most verbs."""
    return [None if value is None else str(value) for value in column]
