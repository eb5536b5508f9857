"""Flows, schedules and records, as a store keeps them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from tidemill.core.courses import Advance, Advanced, Agenda, Course, Kind, problem_with
from tidemill.core.names import is_storable, problem_with_name
from tidemill.errors import ConfigurationError


class CoursePage(msgspec.Struct, frozen=True):
    """`cursor` continues where this page ends; None when it is the last."""

    courses: tuple[Course, ...]
    cursor: str | None


def cursor_of(course: Course) -> str:
    """Behind that one. Two may have begun at the same instant."""
    return f"{course.created!r} {course.id}"


def place_of(cursor: str) -> tuple[float, str]:
    created, _, id_ = cursor.partition(" ")
    with suppress(ValueError):
        if math.isfinite(began := float(created)) and problem_with_name("id", id_) is None:
            return began, id_
    raise ConfigurationError(f"cursor: must be one that a page ended with, is {cursor[:50]!r}")


def checked(advances: Sequence[Advance]) -> None:
    """F5."""
    for item in advances:
        if problem := problem_with(item):
            raise ConfigurationError(f"{item.kind} {item.id[:50]!r} cannot be advanced: {problem}")


def refuse_unstorable(field: str, words: Iterable[str] | None) -> None:
    """F23."""
    for word in words or ():
        if not is_storable(word):
            raise ConfigurationError(
                f"{field}: must be text without NUL characters or lone surrogates, is {word[:50]!r}"
            )


class Courses(Protocol):
    async def advance(self, advances: Sequence[Advance]) -> list[Advanced]:
        """One answer per advance, in order; one never stops the others.

        F1  An advance is all or nothing: the course as it becomes, the jobs it makes, the ends it took.
        F2  It is done when the course has the revision it expects; 0 expects that there is none, and that
            none is remembered. Otherwise nothing changes.
        F3  Its jobs are inserted as any job, but for length limits. One whose id is known stays as it is; one
            with an `error`, or with which the store finds a problem, is kept as a failed job
            (`core.refused`): with its key, priority, timeout, trace and tags. Which job stands for each is
            answered.
        F4  A course that ends is kept for `keep` seconds from when it came into that state. A flow that is
            forgotten, or pruned, is remembered by id for MEMORY_OF_IDS; a schedule or a record is not, its
            name is free at once.
        F5  An advance with a `core.courses.problem_with` is refused (ConfigurationError), and nothing of the
            call is done.
        """
        ...

    async def agenda(self, kind: Kind, limit: int = 100, ids: Sequence[str] | None = None) -> Agenda:
        """Courses that wait to be advanced, those with ends first, each the longest waiting first; with `ids`
        only of these.

        F10 Whenever a job of a flow comes to an end, leaves one, or goes, by whatever verb, that flow is on
            the agenda from that very step on, until an advance took that very end. Ends are listed oldest
            first, ENDS_AT_ONCE of a course at most; one without a job says that all its jobs are to be
            looked at.
        F11 So is a course whose `due` is over, until an advance gave it another.
        F12 `next_due` is in how many seconds the next one of that kind, of all there are, comes due.
        F13 A record is on no agenda: it has no due time, and its jobs stir nothing.
        """
        ...

    async def courses(self, kind: Kind, ids: Sequence[str]) -> list[Course | None]:
        """F20 One answer per id, in order."""
        ...

    async def find_courses(
        self,
        kind: Kind,
        *,
        name: str | None = None,
        states: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> CoursePage:
        """F21 Newest first; following `cursor` meets every one that matches once, whatever begins
        meanwhile."""
        ...

    async def course_counts(self, kind: Kind) -> dict[str, int]:
        """F22 How many there are in each state; equals a recount at every instant.

        F23 An id, name or state that no store can keep (NUL, a lone surrogate) is refused by every verb
            (ConfigurationError), and not merely unknown."""
        ...
