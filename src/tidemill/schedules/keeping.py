"""Schedules in the store: read, decided, and written if nobody was quicker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tidemill.contract.store import Store
from tidemill.core.courses import Advance, Course, Kind, Made
from tidemill.errors import ConfigurationError
from tidemill.schedules.changes import disable, put
from tidemill.schedules.schedule import Origin, Schedule, Wanted, as_next, readable, same

AT_ONCE = 200
PAGE = 500


class Changed(NamedTuple):
    """A schedule as it becomes, and jobs that come of it."""

    schedule: Schedule
    jobs: tuple[Made, ...] = ()


Alter = Callable[[str, Schedule | None, float], Changed | None]
"""From a name, the schedule as it is, and the store's wall time; None leaves it alone."""


async def change(store: Store, name: str, alter: Alter) -> None:
    await change_many(store, [name], alter)


async def change_many(store: Store, names: Iterable[str], alter: Alter) -> None:
    """Each is written by itself. An error names the schedule, and nothing behind it is changed."""
    for chunk in _chunks(list(dict.fromkeys(names))):
        left = chunk
        while left:
            left = await _try(store, left, alter)


async def _try(store: Store, names: Sequence[str], alter: Alter) -> list[str]:
    """Answers those somebody else changed meanwhile."""
    courses = await store.courses(Kind.SCHEDULE, names)
    now = (await store.read_clock()).wall
    advances = [
        advance_of(course, changed, now)
        for name, course in zip(names, courses, strict=True)
        if (changed := _altered(name, course, now, alter)) is not None
    ]
    answers = await store.advance(advances) if advances else []
    return [item.id for item, answer in zip(advances, answers, strict=True) if not answer.done]


def _altered(name: str, course: Course | None, now: float, alter: Alter) -> Changed | None:
    try:
        return alter(name, None if course is None else readable(course), now)
    except ConfigurationError as error:
        raise ConfigurationError(f"schedule {name!r}: {error}") from None


def advance_of(course: Course | None, changed: Changed, now: float) -> Advance:
    return Advance(
        kind=Kind.SCHEDULE,
        id=changed.schedule.name,
        expected=0 if course is None else course.revision,
        next=as_next(changed.schedule, now),
        jobs=changed.jobs,
    )


async def declare(store: Store, declared: Mapping[str, Wanted], tasks: Mapping[str, object]) -> None:
    """What is new, other or back is written. A schedule that code declared and that is not in this code is
    disabled, if this code has its task: another program's schedules are its own."""
    gone = [course.id for course in await every_declared(store) if course.id not in declared]

    def write(name: str, before: Schedule | None, now: float) -> Changed | None:
        if is_so(before, declared[name], Origin.DECLARED):
            return None
        return Changed(put(before, name, declared[name], Origin.DECLARED, now))

    def turn_off(_: str, before: Schedule | None, __: float) -> Changed | None:
        if before is None or before.removed or before.disabled or before.origin is not Origin.DECLARED:
            return None
        return Changed(disable(before)) if before.work.task in tasks else None

    await change_many(store, declared, write)
    await change_many(store, gone, turn_off)


async def every_declared(store: Store) -> list[Course]:
    found: list[Course] = []
    cursor: str | None = None
    while True:
        page = await store.find_courses(Kind.SCHEDULE, name=Origin.DECLARED, limit=PAGE, cursor=cursor)
        found += page.courses
        if (cursor := page.cursor) is None:
            return found


def is_so(before: Schedule | None, wanted: Wanted, origin: Origin) -> bool:
    """A program that starts often does not write each time."""
    return (
        before is not None
        and before.origin is origin
        and not (before.disabled or before.removed)
        and before.settings == wanted.settings
        and same(before.work, wanted.work)
    )


def _chunks(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), AT_ONCE):
        yield names[start : start + AT_ONCE]
