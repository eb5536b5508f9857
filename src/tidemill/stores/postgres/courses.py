"""Reading flows and schedules, and what waits to be advanced."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from asyncpg import Record
from msgspec.structs import asdict

from tidemill.contract.courses import CoursePage, cursor_of, place_of, refuse_unstorable
from tidemill.core.courses import ENDS_AT_ONCE, Agenda, Course, End, Kind, Stirred
from tidemill.core.states import State
from tidemill.engine import wants
from tidemill.stores.postgres.connection import Connection
from tidemill.stores.postgres.rows import number
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.view import Found, View

SQL = load("courses")
FIELDS = Course.__struct_fields__
_COLUMNS = ", ".join(FIELDS)
_BY_ID = SQL.by_id.format(columns=_COLUMNS)
_AGENDA = SQL.agenda.format(columns=_COLUMNS, stirred=SQL.stirred, due=SQL.due)
_AGENDA_OF = SQL.agenda.format(columns=_COLUMNS, stirred=SQL.stirred_of, due=SQL.due_of)
_NEWEST = (math.inf, "")


def course_of(row: Record) -> Course:
    values = {field: row[field] for field in FIELDS}
    return Course(**values | {"kind": Kind(values["kind"]), "record": values["record"].encode()})


def row_of(course: Course) -> dict[str, Any]:
    times = {"due": number(course.due), "until": number(course.until)}
    return asdict(course) | {"record": course.record.decode()} | times


async def look(view: View, wanted: Iterable[wants.CourseOf], found: Found) -> None:
    asked = list(wanted)
    found.update(dict.fromkeys(asked))
    for row in await view.fetch(_BY_ID, [want.kind for want in asked], [want.id for want in asked]):
        course = course_of(row)
        found[wants.CourseOf(course.kind, course.id)] = course


async def courses(connection: Connection, kind: Kind, ids: Sequence[str]) -> list[Course | None]:
    """F20."""
    refuse_unstorable("ids", ids)
    rows = await connection.fetch(_BY_ID, [kind] * len(ids), list(ids))
    found = {row["id"]: course_of(row) for row in rows}
    return [found.get(id_) for id_ in ids]


async def agenda(connection: Connection, kind: Kind, limit: int, ids: Sequence[str] | None) -> Agenda:
    """F10 to F12, as of one instant."""
    refuse_unstorable("ids", ids)
    asked = (*connection.clock.asked(), kind, limit, ENDS_AT_ONCE)
    if ids is None:
        rows = await connection.fetch(_AGENDA, *asked)
    else:
        rows = await connection.fetch(_AGENDA_OF, *asked, list(ids))
    now = connection.clock.heard(rows[0]["wall"], rows[0]["boot"], rows[0]["epoch"])
    due = rows[0]["next_due"]
    stirred = tuple(Stirred(course_of(row), _ends(row)) for row in rows if row["id"] is not None)
    return Agenda(stirred, None if due is None else due - now.wall)


def _ends(row: Record) -> tuple[End, ...]:
    columns = [row[column] or () for column in ("numbers", "jobs", "states")]
    return tuple(
        End(at, job, None if state is None else State(state)) for at, job, state in zip(*columns, strict=True)
    )


async def find(  # noqa: PLR0917 - the contract's
    connection: Connection,
    kind: Kind,
    name: str | None,
    states: Sequence[str] | None,
    limit: int,
    cursor: str | None,
) -> CoursePage:
    """F21."""
    refuse_unstorable("name", [name or ""])
    refuse_unstorable("states", states)
    values: list[Any] = [kind, *(_NEWEST if cursor is None else place_of(cursor)), limit + 1]
    if states is not None:
        values.append(list(set(states)))
    meant = ""
    if name is not None:
        values.append(name)
        meant = f"AND name = ${len(values)}"
    sql = SQL.find if states is None else SQL.find_states
    rows = await connection.fetch(sql.format(columns=_COLUMNS, meant=meant), *values)
    page = tuple(map(course_of, rows[:limit]))
    return CoursePage(page, cursor_of(page[-1]) if len(rows) > limit and page else None)


async def counts(connection: Connection, kind: Kind) -> dict[str, int]:
    """F22."""
    return dict(map(tuple, await connection.fetch(SQL.counts, kind)))
