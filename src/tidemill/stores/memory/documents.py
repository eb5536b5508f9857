"""Reads documents and the worklist of the memory store."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

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
from tidemill.engine.records import Records


def get_worklist(records: Records, kind: DocumentKind, limit: int, ids: Sequence[str] | None) -> Worklist:
    """Returns up to `limit` documents of one kind to advance (F10, F11), and the seconds until the next
    document becomes due (F12). `ids`: return only these documents."""
    refuse_unstorable("ids", ids)
    waiting, dues, now = _job_changes(records, kind), records.dues[kind], records.clock.wall()
    due_count = dues.position((math.nextafter(now, math.inf),))
    for _, id_ in dues.slice(0, due_count if ids is not None else min(due_count, limit)):
        waiting.setdefault(id_, [])
    selected = [id_ for id_ in waiting if ids is None or id_ in ids][:limit]
    items = (
        WorkItem(records.documents[kind, id_], tuple(waiting[id_][:MAX_CHANGES_PER_DOCUMENT]))
        for id_ in selected
    )
    following = dues.at(due_count)
    return Worklist(tuple(items), None if following is None else following[0] - now)


def _job_changes(records: Records, kind: DocumentKind) -> dict[str, list[JobChange]]:
    found: dict[str, list[JobChange]] = {}
    for number, mark in records.work_marks.items():
        of, id_ = mark.document
        if of is kind and mark.document in records.documents:
            job = records.jobs.get(mark.job)
            found.setdefault(id_, []).append(JobChange(number, mark.job, None if job is None else job.state))
    return found


def get_documents(records: Records, kind: DocumentKind, ids: Sequence[str]) -> list[Document | None]:
    """Returns one document per id, in the order of `ids`; None for an id that does not exist (F20)."""
    refuse_unstorable("ids", ids)
    return [records.documents.get((kind, id_)) for id_ in ids]


def find_documents(  # noqa: PLR0917 - the contract's
    records: Records,
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
    after = None if cursor is None else parse_document_cursor(cursor)
    found = sorted(
        (
            document
            for document in records.documents.values()
            if document.kind is kind
            and (name is None or document.name == name)
            and (states is None or document.state in states)
            and (after is None or _sort_key(document) < after)
        ),
        key=_sort_key,
        reverse=True,
    )
    page = tuple(found[:limit])
    return DocumentPage(page, document_cursor(page[-1]) if page and len(found) > limit else None)


def count_documents(records: Records, kind: DocumentKind) -> dict[str, int]:
    return dict(Counter(document.state for document in records.documents.values() if document.kind is kind))


def _sort_key(document: Document) -> tuple[float, str]:
    return document.created, document.id
