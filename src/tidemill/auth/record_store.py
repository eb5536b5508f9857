"""Typed access to the store's documents of kind "record": tokens, links, sessions, audit entries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from tidemill.contract.store import Store
from tidemill.core.documents import Advance, Document, DocumentKind, DocumentUpdate

T = TypeVar("T", bound=msgspec.Struct)

OpenStore = Callable[[], Awaitable[Store]]


class AuthRecord(NamedTuple, Generic[T]):
    """A stored value with its id and state.

    - `until`: the wall time at which the store deletes the record, None for never
    - `revision`: changes with every write; a write that expects an older revision is refused"""

    id: str
    value: T
    state: str
    created: float
    until: float | None
    revision: int


class RecordStore(Generic[T]):
    """Stores values of one type as documents. `name` is the name of these documents, such as `token`."""

    def __init__(self, store: OpenStore, name: str, value_type: type[T]) -> None:
        self._store, self._name = store, name
        self._decoder = msgspec.json.Decoder(value_type)

    async def create(self, id_: str, value: T, state: str, keep: float | None = None) -> bool:
        """Creates a record. Returns False if the id is taken. The store deletes the record after `keep`
        seconds, or never if `keep` is None."""
        return await self._advance(id_, 0, self._next(value, state, keep))

    async def update(self, stored: AuthRecord[T], value: T, state: str, keep: float | None = None) -> bool:
        """Replaces the value and state of a record. Returns False if another process has changed the record
        since `stored` was read. The store deletes the record after `keep` seconds, or never if None."""
        return await self._advance(stored.id, stored.revision, self._next(value, state, keep))

    async def delete(self, stored: AuthRecord[T]) -> bool:
        """Deletes a record. Returns False if another process changed or deleted the record first. Of two
        concurrent callers exactly one gets True."""
        return await self._advance(stored.id, stored.revision, None)

    async def get(self, id_: str) -> AuthRecord[T] | None:
        [document] = await (await self._store()).documents(DocumentKind.RECORD, [self.key(id_)])
        return self.read(document)

    async def page(
        self, limit: int, cursor: str | None = None, states: Sequence[str] | None = None
    ) -> tuple[list[AuthRecord[T]], str | None]:
        """Returns a page of records, newest first, and the cursor of the next page. The cursor is None on the
        last page. `states=None`: records in all states."""
        store = await self._store()
        page = await store.find_documents(
            DocumentKind.RECORD, name=self._name, states=states, limit=limit, cursor=cursor
        )
        return [stored for document in page.documents if (stored := self.read(document))], page.cursor

    def key(self, id_: str) -> str:
        return f"{self._name}:{id_}"

    def read(self, document: Document | None) -> AuthRecord[T] | None:
        if document is None:
            return None
        return AuthRecord(
            id=document.id.removeprefix(f"{self._name}:"),
            value=self._decoder.decode(document.record),
            state=document.state,
            created=document.created,
            until=document.until,
            revision=document.revision,
        )

    def _next(self, value: T, state: str, keep: float | None) -> DocumentUpdate:
        return DocumentUpdate(name=self._name, state=state, record=msgspec.json.encode(value), keep=keep)

    async def _advance(self, id_: str, expected: int, update: DocumentUpdate | None) -> bool:
        item = Advance(kind=DocumentKind.RECORD, id=self.key(id_), expected=expected, next=update)
        [answer] = await (await self._store()).advance([item])
        return answer.done
