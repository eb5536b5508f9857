"""What becomes of a flow's or a schedule's row, and of every order and count it stands in."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.core.courses import Course, Kind
from tidemill.engine import wants
from tidemill.engine.changes import Changes
from tidemill.engine.wants import Rows
from tidemill.stores.redis import keys, rows
from tidemill.stores.redis.writes import AT_ONCE, Writes

Place = tuple[str, float, str]
"""The key of an order, the score, and the member."""


def write_courses(writes: Writes, changes: Changes, looked: Rows) -> None:
    """Whatever stirs a course comes last: it is noted only where there is such a course by then."""
    for (kind, id_), after in changes.courses.items():
        _write(writes, kind, id_, looked.get(wants.CourseOf(kind, id_)), after)
    for at in range(0, len(changes.taken), AT_ONCE):
        writes.command("TAKE", keys.STIRS, *changes.taken[at : at + AT_ONCE])
    jobs: dict[tuple[Kind, str], list[str]] = {}
    for stir in changes.stirs:
        jobs.setdefault(stir.course, []).append(stir.job)
    for (kind, id_), some in jobs.items():
        for at in range(0, len(some), AT_ONCE):
            writes.command("STIR", keys.STIRS, kind.value, id_, *some[at : at + AT_ONCE])


def places(course: Course) -> Iterator[Place]:
    """Where it is to be found."""
    for state in ("", course.state):
        for name in ("", course.name):
            yield keys.listed(course.kind, state, name), course.created, course.id
    if course.due is not None:
        yield keys.dues(course.kind), course.due, course.id
    if course.until is not None:
        yield keys.OUTLIVED, course.until, keys.course(course.kind, course.id)


def _write(writes: Writes, kind: Kind, id_: str, before: Course | None, after: Course | None) -> None:
    left = () if before is None else tuple(places(before))
    taken = () if after is None else tuple(places(after))
    for key, _, member in set(left) - set(taken):
        writes.remove(key, member)
    for key, score, member in set(taken) - set(left):
        writes.add(key, score, member)
    if before is not None:
        writes.tally(keys.course_counts(kind), before.state, -1)
    if after is not None:
        writes.tally(keys.course_counts(kind), after.state, 1)
        writes.set(keys.courses(kind), id_, rows.course_text(after))
    else:
        writes.unset(keys.courses(kind), id_)
    if before is not None and (after is None or after.revision <= before.revision):  # it begins anew
        writes.command("UNSTIR", keys.STIRS, kind.value, id_)
