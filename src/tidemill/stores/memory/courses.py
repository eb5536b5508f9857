"""Reading flows and schedules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tidemill.contract.courses import CoursePage, cursor_of, place_of, refuse_unstorable
from tidemill.core.courses import ENDS_AT_ONCE, Agenda, Course, End, Kind, Stirred
from tidemill.engine.records import Records


def agenda(records: Records, kind: Kind, limit: int, ids: Sequence[str] | None) -> Agenda:
    """F10 to F12."""
    refuse_unstorable("ids", ids)
    waiting, dues, now = _ends(records, kind), records.dues[kind], records.clock.wall()
    over = dues.place((math.nextafter(now, math.inf),))
    for _, id_ in dues.slice(0, over if ids is not None else min(over, limit)):
        waiting.setdefault(id_, [])
    meant = [id_ for id_ in waiting if ids is None or id_ in ids][:limit]
    following = dues.at(over)
    return Agenda(
        tuple(Stirred(records.courses[kind, id_], tuple(waiting[id_][:ENDS_AT_ONCE])) for id_ in meant),
        None if following is None else following[0] - now,
    )


def _ends(records: Records, kind: Kind) -> dict[str, list[End]]:
    found: dict[str, list[End]] = {}
    for number, stir in records.stirs.items():
        of, id_ = stir.course
        if of is kind and stir.course in records.courses:
            job = records.jobs.get(stir.job)
            found.setdefault(id_, []).append(End(number, stir.job, None if job is None else job.state))
    return found


def courses(records: Records, kind: Kind, ids: Sequence[str]) -> list[Course | None]:
    """F20."""
    refuse_unstorable("ids", ids)
    return [records.courses.get((kind, id_)) for id_ in ids]


def find(  # noqa: PLR0917 - the contract's
    records: Records,
    kind: Kind,
    name: str | None,
    states: Sequence[str] | None,
    limit: int,
    cursor: str | None,
) -> CoursePage:
    """F21."""
    refuse_unstorable("name", [name or ""])
    refuse_unstorable("states", states)
    behind = None if cursor is None else place_of(cursor)
    found = sorted(
        (
            course
            for course in records.courses.values()
            if course.kind is kind
            and (name is None or course.name == name)
            and (states is None or course.state in states)
            and (behind is None or _place(course) < behind)
        ),
        key=_place,
        reverse=True,
    )
    page = tuple(found[:limit])
    return CoursePage(page, cursor_of(page[-1]) if page and len(found) > limit else None)


def counts(records: Records, kind: Kind) -> dict[str, int]:
    return dict(Counter(course.state for course in records.courses.values() if course.kind is kind))


def _place(course: Course) -> tuple[float, str]:
    return course.created, course.id
