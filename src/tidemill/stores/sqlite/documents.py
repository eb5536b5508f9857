"""Reads and advances documents, and lists the worklist."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from itertools import groupby, islice
from typing import Any

import apsw
from msgspec.structs import astuple, replace

from tidemill.contract.coordination import document_topic, worklist_topic
from tidemill.contract.documents import (
    DocumentPage,
    check_advances,
    document_cursor,
    parse_document_cursor,
    refuse_unstorable,
)
from tidemill.core.documents import (
    MAX_CHANGES_PER_DOCUMENT,
    REMEMBERED_KINDS,
    Advance,
    AdvanceResult,
    Document,
    DocumentJob,
    DocumentKind,
    DocumentUpdate,
    JobChange,
    WorkItem,
    Worklist,
    apply_advance,
    remembered_id,
)
from tidemill.core.jobs import Error, JobGroup, problem_with_group
from tidemill.core.queues import InsertVerdict
from tidemill.core.states import State
from tidemill.stores.sqlite.insert import insert_admitted, insert_failed
from tidemill.stores.sqlite.pools import problem_with_needs
from tidemill.stores.sqlite.statements import load_statements
from tidemill.stores.sqlite.transaction import SqliteTransaction

SQL = load_statements("documents")
_NEWEST = (math.inf, "")


def document_of(row: tuple[Any, ...]) -> Document:
    kind, id_, name, state, created, revision, record, due, finished, until = row
    return Document(
        kind=DocumentKind(kind),
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


def document_row(document: Document) -> tuple[Any, ...]:
    kind, id_, name, state, created, revision, record, *times = astuple(document)
    return kind.value, id_, name, state, created, revision, record.decode(), *times


def get_documents(
    transaction: SqliteTransaction, kind: DocumentKind, ids: Sequence[str]
) -> list[Document | None]:
    """Returns one document per id, in the order of `ids`; None for an id that does not exist (F20)."""
    refuse_unstorable("ids", ids)
    if not ids:
        return []
    rows = transaction.execute(SQL.by_id, (kind.value, apsw.carray(tuple(ids))))
    found = {row[1]: document_of(row) for row in rows}
    return [found.get(id_) for id_ in ids]


def get_worklist(
    transaction: SqliteTransaction, kind: DocumentKind, limit: int, ids: Sequence[str] | None
) -> Worklist:
    """Returns up to `limit` documents of one kind to advance, each with its changed jobs (F10, F11). Also
    returns the seconds until the next document becomes due (F12). `ids`: return only these documents."""
    refuse_unstorable("ids", ids)
    changed, due = _waiting_documents(transaction, kind, limit, None if ids is None else tuple(ids))
    work_items = tuple(
        WorkItem(document, _job_changes(transaction, document) if document.id in changed else ())
        for document in get_documents(transaction, kind, list(changed | due)[:limit])
        if document is not None
    )
    next_due = transaction.execute(SQL.next_due, (kind.value, transaction.now)).get
    return Worklist(work_items, None if next_due is None else next_due - transaction.now)


def _waiting_documents(
    transaction: SqliteTransaction, kind: DocumentKind, limit: int, ids: tuple[str, ...] | None
) -> tuple[dict[str, None], dict[str, None]]:
    """Returns the ids of documents with job changes, and the ids of due documents. An id may be in both. The
    dicts are used as ordered sets."""
    of, now = kind.value, transaction.now
    if ids is None:
        work_items = transaction.execute(SQL.marked, (of, limit))
        due = transaction.execute(SQL.due, (of, now, limit))
    elif ids:
        work_items = transaction.execute(SQL.marked_of, (of, apsw.carray(ids), limit))
        due = transaction.execute(SQL.due_of, (of, apsw.carray(ids), now))
    else:
        return {}, {}
    return dict.fromkeys(id_ for (id_,) in work_items), dict.fromkeys(id_ for (id_,) in due)


def _job_changes(transaction: SqliteTransaction, document: Document) -> tuple[JobChange, ...]:
    rows = transaction.execute(SQL.job_changes, (document.kind.value, document.id, MAX_CHANGES_PER_DOCUMENT))
    return tuple(
        JobChange(number, job, None if state is None else State(state)) for number, job, state in rows
    )


def find_documents(  # noqa: PLR0917 - the contract's
    transaction: SqliteTransaction,
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
    behind = _NEWEST if cursor is None else parse_document_cursor(cursor)
    page_of = (kind.value, *behind, limit + 1)
    rows: list[tuple[Any, ...]] = []
    if states is not None:
        for state in set(states):
            rows += transaction.execute(SQL.find_state, (*page_of, state, name))
    elif name is not None:
        rows += transaction.execute(SQL.find_name, (*page_of, name))
    else:
        rows += transaction.execute(SQL.find, page_of)
    found = sorted(map(document_of, rows), key=lambda document: (document.created, document.id), reverse=True)
    page = tuple(found[:limit])
    return DocumentPage(page, document_cursor(page[-1]) if page and len(found) > limit else None)


def count_documents(transaction: SqliteTransaction, kind: DocumentKind) -> dict[str, int]:
    """Returns the number of documents of one kind in each state (F22)."""
    return dict(transaction.execute(SQL.counts, (kind.value,)))


def advance(transaction: SqliteTransaction, advances: Sequence[Advance]) -> list[AdvanceResult]:
    """Applies the advances in order, and then inserts the jobs of all advances together (F1 to F5). Returns
    one result per advance."""
    check_advances(advances)
    current = _current_documents(transaction, advances)
    answers: list[AdvanceResult] = []
    for item in advances:
        answer = _advance(transaction, item, current.get((item.kind, item.id)))
        current[item.kind, item.id] = answer.document
        answers.append(answer)
    done = (item for item, answer in zip(advances, answers, strict=True) if answer.done)
    standing_for = iter(_insert_jobs(transaction, [made for item in done for made in item.jobs]))
    return [
        replace(answer, jobs=tuple(islice(standing_for, len(item.jobs)))) if answer.done else answer
        for item, answer in zip(advances, answers, strict=True)
    ]


def _current_documents(
    transaction: SqliteTransaction, advances: Sequence[Advance]
) -> dict[tuple[DocumentKind, str], Document | None]:
    found: dict[tuple[DocumentKind, str], Document | None] = {}
    for kind in DocumentKind:
        ids = [item.id for item in advances if item.kind is kind]
        found.update(
            ((kind, document.id), document) for document in get_documents(transaction, kind, ids) if document
        )
    return found


def _advance(transaction: SqliteTransaction, item: Advance, before: Document | None) -> AdvanceResult:
    if before is None and (item.expected or _is_known_id(transaction, item)):
        return AdvanceResult(done=False, document=None)
    if before is not None and before.revision != item.expected:
        return AdvanceResult(done=False, document=before)
    if item.taken:
        transaction.execute(SQL.take, (apsw.carray(array("q", item.taken)),))
    after = None if item.next is None else _next_document(transaction, before, item, item.next)
    if before is not None and after is None:
        delete_document(transaction, item.kind, item.id)
    return AdvanceResult(done=True, document=after)


def _is_known_id(transaction: SqliteTransaction, item: Advance) -> bool:
    return transaction.find_known_id(remembered_id(item.kind, item.id)) is not None


def _next_document(
    transaction: SqliteTransaction, before: Document | None, item: Advance, then: DocumentUpdate
) -> Document:
    after = apply_advance(before, item, then, transaction.now)
    _save_document(transaction, before, after)
    if item.requeue:
        transaction.mark_document(item.kind, item.id)
    if after.due is not None and (before is None or before.due != after.due):
        transaction.topics.add(worklist_topic(item.kind))
    if after.finished is not None:
        transaction.topics.add(document_topic(item.kind, item.id))
    return after


def _save_document(transaction: SqliteTransaction, before: Document | None, after: Document) -> None:
    if before is not None and _index_fields(before) == _index_fields(after):
        values = (after.revision, after.record.decode(), after.due, after.kind.value, after.id)
        transaction.execute(SQL.save_progress, values)
    else:
        transaction.execute(SQL.save, document_row(after))


def _index_fields(document: Document) -> tuple[object, ...]:
    """Returns the fields of a document that are in an index, except `due`."""
    return document.name, document.state, document.finished, document.until


def delete_document(transaction: SqliteTransaction, kind: DocumentKind, document: str) -> None:
    """Deletes a document and its entries in the worklist (F4). The store remembers the id of a deleted flow
    for an hour, so a repeated request does not run the flow again."""
    for sql in (SQL.forget, SQL.delete_work):
        transaction.execute(sql, (kind.value, document))
    if kind in REMEMBERED_KINDS:
        transaction.remember_id(remembered_id(kind, document), InsertVerdict.ACCEPTED, document)
    transaction.topics.add(document_topic(kind, document))


def _insert_jobs(transaction: SqliteTransaction, jobs: Sequence[DocumentJob]) -> list[str]:
    """Inserts the jobs in order. Returns one id per job: its own id, or the id of the job that holds its
    unique key (F3). A job that is invalid or has an `error` is stored as a failed job."""
    ids: list[str] = []
    judged = [(made, made.error or _problem(transaction, made)) for made in jobs]
    for (queue, is_good), some in groupby(judged, lambda pair: (pair[0].queue, pair[1] is None)):
        if is_good:
            inserted = insert_admitted(transaction, JobGroup(queue, tuple(made.job for made, _ in some)))
            ids += [result.id for result in inserted]
            continue
        for made, error in some:
            if error is not None:
                insert_failed(transaction, queue, made.job, error)
            ids.append(made.job.id)
    return ids


def _problem(transaction: SqliteTransaction, made: DocumentJob) -> Error | None:
    problem = problem_with_group(JobGroup(made.queue, (made.job,))) or problem_with_needs(
        transaction, (made.job,)
    )
    return None if problem is None else Error("InvalidJob", problem)
