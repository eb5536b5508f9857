"""Reading flows and schedules, and what waits to be advanced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from tidemill.contract.courses import CoursePage, cursor_of, place_of, refuse_unstorable
from tidemill.core.courses import ENDS_AT_ONCE, Agenda, Course, End, Kind, Stirred
from tidemill.stores.redis import keys
from tidemill.stores.redis.records import STATES
from tidemill.stores.redis.rows import course_of
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard
from tidemill.stores.redis.wire import Argument

AGENDA, FIND = load("agenda"), load("find_courses")

AT_ONCE = 200
"""So many rows are fetched by one call."""
ENDS_OF_ALL = 1000
"""An agenda of so many is read in 5 ms; one that is longer in pieces."""


async def agenda(shard: Shard, kind: Kind, limit: int, ids: Sequence[str] | None) -> Agenda:
    """F10 to F12. Each course is read with its ends in one step; more would help nobody, because whoever
    advances one says which revision it looked at."""
    refuse_unstorable("ids", ids)
    next_due, *found = await _look(shard, kind, limit, ids)
    stirred: list[Stirred] = []
    while found:
        stirred += [_stirred(kind, *one) for one in found if isinstance(one, list)]
        left = [one.decode() for one in found if isinstance(one, bytes)]
        found = (await _look(shard, kind, len(left), left))[1:] if left else []
    return Agenda(tuple(stirred), float(next_due) if next_due else None)


async def _look(shard: Shard, kind: Kind, limit: int, ids: Sequence[str] | None) -> list[Any]:
    which: list[Argument] = ["any"] if ids is None else ["of", *dict.fromkeys(ids)]
    return list(
        await shard.run(AGENDA, kind.value, limit, ENDS_AT_ONCE, ENDS_OF_ALL, *which, repeatable=True)
    )


def _stirred(kind: Kind, id_: bytes, row: bytes, ends: Sequence[bytes]) -> Stirred:
    return Stirred(
        course_of(kind, id_.decode(), row),
        tuple(
            End(int(number), job.decode(), STATES[letter] if letter else None)
            for number, job, letter in zip(ends[::3], ends[1::3], ends[2::3], strict=True)
        ),
    )


async def courses(shard: Shard, kind: Kind, ids: Sequence[str]) -> list[Course | None]:
    """F20."""
    refuse_unstorable("ids", ids)
    found: list[Course | None] = []
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        rows = await shard.ask(b"HMGET", shard.key(keys.courses(kind)), *some)
        found += [row and course_of(kind, id_, row) for id_, row in zip(some, rows, strict=True)]
    return found


async def find(  # noqa: PLR0917 - the contract's
    shard: Shard,
    kind: Kind,
    name: str | None,
    states: Sequence[str] | None,
    limit: int,
    cursor: str | None,
) -> CoursePage:
    """F21. Of each state as many as may be on the page; one whose state changes meanwhile may be in two."""
    refuse_unstorable("name", [name or ""])
    refuse_unstorable("states", states)
    behind = None if cursor is None else place_of(cursor)
    found: dict[str, Course] = {}
    for state in ("",) if states is None else sorted(set(states)):
        order = keys.listed(kind, state, name or "")
        found |= {course.id: course async for course in _listed(shard, kind, order, limit + 1, behind)}
    newest = sorted(found.values(), key=lambda course: (course.created, course.id), reverse=True)
    page = tuple(newest[:limit])
    return CoursePage(page, cursor_of(page[-1]) if page and len(newest) > limit else None)


async def _listed(
    shard: Shard, kind: Kind, order: str, limit: int, behind: tuple[float, str] | None
) -> AsyncIterator[Course]:
    left = limit
    while left > 0:
        wanted = min(left, AT_ONCE)
        place = ("", "") if behind is None else (repr(behind[0]), behind[1])
        rows = await shard.run(FIND, kind.value, order, wanted, *place, repeatable=True)
        found = [course_of(kind, id_.decode(), row) for id_, row in zip(rows[::2], rows[1::2], strict=True)]
        for course in found:
            yield course
        if len(found) < wanted:
            return
        left, behind = left - wanted, (found[-1].created, found[-1].id)


async def counts(shard: Shard, kind: Kind) -> dict[str, int]:
    """F22."""
    rows = await shard.ask(b"HGETALL", shard.key(keys.course_counts(kind)))
    return {state.decode(): int(count) for state, count in zip(rows[::2], rows[1::2], strict=True)}
