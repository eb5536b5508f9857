"""Reading flows and schedules, and what waits to be advanced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import apsw
from msgspec.structs import astuple

from tidemill.contract.courses import CoursePage, cursor_of, place_of, refuse_unstorable
from tidemill.core.courses import ENDS_AT_ONCE, Agenda, Course, End, Kind, Stirred
from tidemill.core.states import State
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("courses")
_NEWEST = (math.inf, "")


def course_of(row: tuple[Any, ...]) -> Course:
    kind, id_, name, state, created, revision, record, due, finished, until = row
    return Course(
        kind=Kind(kind),
        id=id_,
        name=name,
        state=state,
        created=created,
        revision=revision,
        record=record.encode(),
        due=due,
        finished=finished,
        until=until,
    )


def row_of(course: Course) -> tuple[Any, ...]:
    kind, id_, name, state, created, revision, record, *times = astuple(course)
    return kind.value, id_, name, state, created, revision, record.decode(), *times


def courses(transaction: Transaction, kind: Kind, ids: Sequence[str]) -> list[Course | None]:
    """F20."""
    refuse_unstorable("ids", ids)
    if not ids:
        return []
    rows = transaction.execute(SQL.by_id, (kind.value, apsw.carray(tuple(ids))))
    found = {row[1]: course_of(row) for row in rows}
    return [found.get(id_) for id_ in ids]


def agenda(transaction: Transaction, kind: Kind, limit: int, ids: Sequence[str] | None) -> Agenda:
    """F10 to F12. What is due and has no ends, as most schedules, costs no look for them."""
    refuse_unstorable("ids", ids)
    with_ends, due = _waiting(transaction, kind, limit, None if ids is None else tuple(ids))
    stirred = tuple(
        Stirred(course, _ends(transaction, course) if course.id in with_ends else ())
        for course in courses(transaction, kind, list(with_ends | due)[:limit])
        if course is not None
    )
    next_due = transaction.execute(SQL.next_due, (kind.value, transaction.now)).get
    return Agenda(stirred, None if next_due is None else next_due - transaction.now)


def _waiting(
    transaction: Transaction, kind: Kind, limit: int, ids: tuple[str, ...] | None
) -> tuple[dict[str, None], dict[str, None]]:
    """Those with ends, and those that are due; some are both."""
    of, now = kind.value, transaction.now
    if ids is None:
        stirred = transaction.execute(SQL.stirred, (of, limit))
        due = transaction.execute(SQL.due, (of, now, limit))
    elif ids:
        stirred = transaction.execute(SQL.stirred_of, (of, apsw.carray(ids), limit))
        due = transaction.execute(SQL.due_of, (of, apsw.carray(ids), now))
    else:
        return {}, {}
    return dict.fromkeys(id_ for (id_,) in stirred), dict.fromkeys(id_ for (id_,) in due)


def _ends(transaction: Transaction, course: Course) -> tuple[End, ...]:
    rows = transaction.execute(SQL.ends, (course.kind.value, course.id, ENDS_AT_ONCE))
    return tuple(End(number, job, None if state is None else State(state)) for number, job, state in rows)


def find(  # noqa: PLR0917 - the contract's
    transaction: Transaction,
    kind: Kind,
    name: str | None,
    states: Sequence[str] | None,
    limit: int,
    cursor: str | None,
) -> CoursePage:
    """F21. Of each state as many as may be on the page: an index has them in their order."""
    refuse_unstorable("name", [name or ""])
    refuse_unstorable("states", states)
    behind = _NEWEST if cursor is None else place_of(cursor)
    page_of = (kind.value, *behind, limit + 1)
    rows: list[tuple[Any, ...]] = []
    if states is not None:
        for state in set(states):
            rows += transaction.execute(SQL.find_state, (*page_of, state, name))
    elif name is not None:
        rows += transaction.execute(SQL.find_name, (*page_of, name))
    else:
        rows += transaction.execute(SQL.find, page_of)
    found = sorted(map(course_of, rows), key=lambda course: (course.created, course.id), reverse=True)
    page = tuple(found[:limit])
    return CoursePage(page, cursor_of(page[-1]) if page and len(found) > limit else None)


def counts(transaction: Transaction, kind: Kind) -> dict[str, int]:
    """F22."""
    return dict(transaction.execute(SQL.counts, (kind.value,)))
