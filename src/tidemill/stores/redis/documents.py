"""Reads documents and the worklist."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

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
from tidemill.stores.redis import keys
from tidemill.stores.redis.job_codec import LETTER_STATES
from tidemill.stores.redis.protocol import CommandArgument
from tidemill.stores.redis.rows import decode_document
from tidemill.stores.redis.scripts import load_script
from tidemill.stores.redis.shard import Shard

WORKLIST, FIND_DOCUMENTS = load_script("worklist"), load_script("find_documents")

DOCUMENTS_PER_REQUEST = 200
"""Documents fetched by one call."""
MAX_JOB_CHANGES = 1000
"""Rows and job changes of one worklist call. Redis reads this many in 5 ms; a longer worklist takes more
calls."""


async def get_worklist(shard: Shard, kind: DocumentKind, limit: int, ids: Sequence[str] | None) -> Worklist:
    """Returns up to `limit` documents of one kind to advance, each with its changed jobs (F10, F11). Also
    returns the seconds until the next document becomes due (F12). `ids`: return only these documents."""
    refuse_unstorable("ids", ids)
    next_due, *found = await _read_worklist(shard, kind, limit, ids)
    work_items: list[WorkItem] = []
    while found:
        work_items += [_work_item(kind, *entry) for entry in found if isinstance(entry, list)]
        left = [entry.decode() for entry in found if isinstance(entry, bytes)]
        found = (await _read_worklist(shard, kind, len(left), left))[1:] if left else []
    return Worklist(tuple(work_items), float(next_due) if next_due else None)


async def _read_worklist(
    shard: Shard, kind: DocumentKind, limit: int, ids: Sequence[str] | None
) -> list[Any]:
    selection: list[CommandArgument] = ["any"] if ids is None else ["of", *dict.fromkeys(ids)]
    return list(
        await shard.run(
            WORKLIST,
            kind.value,
            limit,
            MAX_CHANGES_PER_DOCUMENT,
            MAX_JOB_CHANGES,
            *selection,
            repeatable=True,
        )
    )


def _work_item(kind: DocumentKind, id_: bytes, row: bytes, changes: Sequence[bytes]) -> WorkItem:
    return WorkItem(
        decode_document(kind, id_.decode(), row),
        tuple(
            JobChange(int(number), job.decode(), LETTER_STATES[letter] if letter else None)
            for number, job, letter in zip(changes[::3], changes[1::3], changes[2::3], strict=True)
        ),
    )


async def get_documents(shard: Shard, kind: DocumentKind, ids: Sequence[str]) -> list[Document | None]:
    """Returns one document per id, in the order of `ids`; None for an id that does not exist (F20)."""
    refuse_unstorable("ids", ids)
    found: list[Document | None] = []
    for start in range(0, len(ids), DOCUMENTS_PER_REQUEST):
        some = ids[start : start + DOCUMENTS_PER_REQUEST]
        rows = await shard.ask(b"HMGET", shard.key(keys.documents(kind)), *some)
        found += [row and decode_document(kind, id_, row) for id_, row in zip(some, rows, strict=True)]
    return found


async def find_documents(  # noqa: PLR0917 - the contract's
    shard: Shard,
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
    behind = None if cursor is None else parse_document_cursor(cursor)
    found: dict[str, Document] = {}
    for state in ("",) if states is None else sorted(set(states)):
        order = keys.document_index(kind, state, name or "")
        found |= {
            document.id: document async for document in _read_index(shard, kind, order, limit + 1, behind)
        }
    newest = sorted(found.values(), key=lambda document: (document.created, document.id), reverse=True)
    page = tuple(newest[:limit])
    return DocumentPage(page, document_cursor(page[-1]) if page and len(newest) > limit else None)


async def _read_index(
    shard: Shard, kind: DocumentKind, order: str, limit: int, behind: tuple[float, str] | None
) -> AsyncIterator[Document]:
    left = limit
    while left > 0:
        count = min(left, DOCUMENTS_PER_REQUEST)
        position = ("", "") if behind is None else (repr(behind[0]), behind[1])
        rows = await shard.run(FIND_DOCUMENTS, kind.value, order, count, *position, repeatable=True)
        pairs = zip(rows[::2], rows[1::2], strict=True)
        found = [decode_document(kind, id_.decode(), row) for id_, row in pairs]
        for document in found:
            yield document
        if len(found) < count:
            return
        left, behind = left - count, (found[-1].created, found[-1].id)


async def count_documents(shard: Shard, kind: DocumentKind) -> dict[str, int]:
    """Returns the number of documents of one kind in each state (F22)."""
    rows = await shard.ask(b"HGETALL", shard.key(keys.document_counts(kind)))
    return {state.decode(): int(count) for state, count in zip(rows[::2], rows[1::2], strict=True)}
