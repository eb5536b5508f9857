"""Reads documents and the worklist."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from asyncpg import Record
from msgspec.structs import asdict

from tidemill.contract.documents import (
    DocumentPage,
    document_cursor,
    parse_document_cursor,
    refuse_unstorable,
)
from tidemill.core.documents import (
    MAX_CHANGES_PER_DOCUMENT,
    Document,
    DocumentKind,
    JobChange,
    WorkItem,
    Worklist,
)
from tidemill.core.states import State
from tidemill.engine import queries
from tidemill.stores.postgres.connection import PostgresConnection
from tidemill.stores.postgres.load_jobs import LoadedRows, TransactionView
from tidemill.stores.postgres.rows import json_number
from tidemill.stores.postgres.statements import load_statements

SQL = load_statements("documents")
FIELDS = Document.__struct_fields__
_COLUMNS = ", ".join(FIELDS)
_BY_ID = SQL.by_id.format(columns=_COLUMNS)
_WORKLIST = SQL.worklist.format(columns=_COLUMNS, marked=SQL.marked, due=SQL.due)
_WORKLIST_OF = SQL.worklist.format(columns=_COLUMNS, marked=SQL.marked_of, due=SQL.due_of)
_NEWEST = (math.inf, "")


def document_of(row: Record) -> Document:
    values = {field: row[field] for field in FIELDS}
    return Document(**values | {"kind": DocumentKind(values["kind"]), "record": values["record"].encode()})


def document_row(document: Document) -> dict[str, Any]:
    times = {"due": json_number(document.due), "until": json_number(document.until)}
    return asdict(document) | {"record": document.record.decode()} | times


async def load_documents(
    view: TransactionView, requested: Iterable[queries.DocumentById], found: LoadedRows
) -> None:
    queries_ = list(requested)
    found.update(dict.fromkeys(queries_))
    for row in await view.fetch(_BY_ID, [want.kind for want in queries_], [want.id for want in queries_]):
        document = document_of(row)
        found[queries.DocumentById(document.kind, document.id)] = document


async def get_documents(
    connection: PostgresConnection, kind: DocumentKind, ids: Sequence[str]
) -> list[Document | None]:
    """Returns one document per id, in the order of `ids`; None for an id that does not exist (F20)."""
    refuse_unstorable("ids", ids)
    rows = await connection.fetch(_BY_ID, [kind] * len(ids), list(ids))
    found = {row["id"]: document_of(row) for row in rows}
    return [found.get(id_) for id_ in ids]


async def get_worklist(
    connection: PostgresConnection, kind: DocumentKind, limit: int, ids: Sequence[str] | None
) -> Worklist:
    """Returns up to `limit` documents of one kind to advance (F10, F11), and the seconds until the next
    document becomes due (F12). `ids`: return only these documents."""
    refuse_unstorable("ids", ids)
    values = (*connection.clock.arguments(), kind, limit, MAX_CHANGES_PER_DOCUMENT)
    if ids is None:
        rows = await connection.fetch(_WORKLIST, *values)
    else:
        rows = await connection.fetch(_WORKLIST_OF, *values, list(ids))
    now = connection.clock.update(rows[0]["wall"], rows[0]["boot"], rows[0]["epoch"])
    due = rows[0]["next_due"]
    work_items = tuple(WorkItem(document_of(row), _job_changes(row)) for row in rows if row["id"] is not None)
    return Worklist(work_items, None if due is None else due - now.wall)


def _job_changes(row: Record) -> tuple[JobChange, ...]:
    columns = [row[column] or () for column in ("numbers", "jobs", "states")]
    return tuple(
        JobChange(int(at), job, None if state is None else State(state))
        for at, job, state in zip(*columns, strict=True)
    )


async def find_documents(  # noqa: PLR0917 - the contract's
    connection: PostgresConnection,
    kind: DocumentKind,
    name: str | None,
    states: Sequence[str] | None,
    limit: int,
    cursor: str | None,
) -> DocumentPage:
    """Returns one page of documents of one kind, newest first, with the cursor of the next page (F21). `name`
    and `states` restrict the search; None means any."""
    refuse_unstorable("name", [name or ""])
    refuse_unstorable("states", states)
    arguments: list[Any] = [kind, *(_NEWEST if cursor is None else parse_document_cursor(cursor)), limit + 1]
    if states is not None:
        arguments.append(list(set(states)))
    condition = ""
    if name is not None:
        arguments.append(name)
        condition = f"AND name = ${len(arguments)}"
    sql = SQL.find if states is None else SQL.find_states
    rows = await connection.fetch(sql.format(columns=_COLUMNS, condition=condition), *arguments)
    page = tuple(map(document_of, rows[:limit]))
    return DocumentPage(page, document_cursor(page[-1]) if len(rows) > limit and page else None)


async def count_documents(connection: PostgresConnection, kind: DocumentKind) -> dict[str, int]:
    """Returns the number of documents of one kind in each state (F22)."""
    return dict(map(tuple, await connection.fetch(SQL.counts, kind)))
