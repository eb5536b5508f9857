"""Writes the metrics of one process to the store every few seconds, as a snapshot document."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tidemill.core.documents import Advance, AdvanceResult, Document, DocumentKind, DocumentUpdate
from tidemill.errors import StoreError
from tidemill.metrics.families import MetricSamples, SamplesByName, add_samples, subtract_samples
from tidemill.metrics.instruments import MetricRegistry

if TYPE_CHECKING:
    from tidemill.contract.store import Store


SNAPSHOT_DOCUMENT = "metrics-snapshot"
SUM_DOCUMENT, TOTALS_DOCUMENT = "metrics-snapshot-sum", "history-totals"
"""Document names; the last two are also ids, because there is one document of each."""
STATE_OPEN, STATE_SEALED, STATE_STORED = "open", "sealed", "stored"

SNAPSHOTS_PER_PAGE = 100

T = TypeVar("T")


class SnapshotSum(msgspec.Struct, frozen=True):
    """The sum of all snapshots that were rolled up (added to this sum). `rolled_up`: the ids of added
    snapshots that the store may not have deleted yet."""

    counted: tuple[MetricSamples, ...] = ()
    rolled_up: tuple[str, ...] = ()


async def iter_snapshots(store: Store) -> AsyncIterator[Document]:
    cursor: str | None = None
    while True:
        page = await store.find_documents(
            DocumentKind.RECORD, name=SNAPSHOT_DOCUMENT, limit=SNAPSHOTS_PER_PAGE, cursor=cursor
        )
        for document in page.documents:
            yield document
        if page.cursor is None:
            return
        cursor = page.cursor


async def load_document(store: Store, name: str, kind: type[T]) -> tuple[int, T]:
    """Returns the revision and the decoded value of the document with this name. Returns revision 0 and an
    empty value of `kind` if the document is missing."""
    [document] = await store.documents(DocumentKind.RECORD, [name])
    return (
        (0, kind())
        if document is None
        else (document.revision, msgspec.json.decode(document.record, type=kind))
    )


async def save_document(store: Store, name: str, expected: int, record: object) -> bool:
    """Writes the document if its revision is still `expected`. Returns False if another process changed it
    first."""
    return (
        await write_document(
            store, name, expected, name=name, state=STATE_STORED, record=msgspec.json.encode(record)
        )
    ).done


async def write_document(
    store: Store, id_: str, expected: int, *, name: str, state: str, record: bytes
) -> AdvanceResult:
    then = DocumentUpdate(name=name, state=state, record=record)
    [advanced] = await store.advance(
        [Advance(kind=DocumentKind.RECORD, id=id_, expected=expected, next=then)]
    )
    return advanced


async def delete_document(store: Store, document: Document) -> None:
    await store.advance(
        [Advance(kind=DocumentKind.RECORD, id=document.id, expected=document.revision, next=None)]
    )


def decode_samples(document: Document) -> tuple[MetricSamples, ...]:
    """Returns the samples of a snapshot document. Returns no samples if another version of Tidemill wrote the
    document in an unknown format."""
    try:
        return msgspec.json.decode(document.record, type=tuple[MetricSamples, ...])
    except msgspec.DecodeError:
        return ()


WRITE_INTERVAL_SECONDS = 15.0
"""Prometheus usually scrapes this often. A process that is killed loses at most this many seconds of
counts."""

FINAL_WRITE_TIMEOUT_SECONDS = 2.0
"""A process that ends waits at most this long for a store that hangs."""

MAX_WRITE_ATTEMPTS = 5
"""A lost reply and a rolled-up snapshot each need one more attempt."""


class SnapshotWriter:
    """Writes the metrics of one process to the store, as a snapshot. A worker rolls up a snapshot that did
    not change for some minutes: it adds the snapshot to a common sum and deletes it.

    - `_base`: the counts of this process that were already added to the sum
    - `_written`: all counts of this process that the store has confirmed"""

    def __init__(self, instruments: MetricRegistry, new_id: Callable[[], str]) -> None:
        self.instruments, self._new_id = instruments, new_id
        self._id: str | None = None
        self._revision = 0
        self._base: SamplesByName = {}
        self._written: SamplesByName = {}
        self._unconfirmed: SamplesByName | None = None
        self._busy = False
        _WRITERS.add(self)

    async def tell(self, store: Store) -> bool:
        """Writes the metrics to the store if they changed. Always returns False: maintenance need not call it
        again at once."""
        now = self.instruments.counted()
        if self._busy or (now == self._written and self._unconfirmed is None):
            return False
        self._busy, self._unconfirmed = True, now
        try:
            for _ in range(MAX_WRITE_ATTEMPTS):
                if await self._write(store, now):
                    self._written, self._unconfirmed = now, None
                    break
        finally:
            self._busy = False
        return False

    async def write_periodically(self, store: Store) -> None:
        """Writes the metrics every 15 seconds until the task is cancelled, and then once more. Processes that
        are not workers use it too."""
        try:
            while True:
                await asyncio.sleep(WRITE_INTERVAL_SECONDS)
                with suppress(StoreError):  # the next write includes these counts
                    await self.tell(store)
        finally:
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(FINAL_WRITE_TIMEOUT_SECONDS):
                    await self.tell(store)

    async def _write(self, store: Store, now: SamplesByName) -> bool:
        if self._id is None:
            self._id = f"{SNAPSHOT_DOCUMENT}-{self._new_id()}"
        record = msgspec.json.encode(tuple(subtract_samples(now, self._base).values()))
        advanced = await write_document(
            store, self._id, self._revision, name=SNAPSHOT_DOCUMENT, state=STATE_OPEN, record=record
        )
        if advanced.done:
            self._revision += 1
        else:
            self._resync(advanced.document)
        return advanced.done

    def _resync(self, document: Document | None) -> None:
        """Prepares the next write after the store refused one. `document` is the stored snapshot, None if it
        is gone. If the snapshot was rolled up, the next write begins a new one."""
        if document is not None and document.state != STATE_SEALED:
            self._revision = document.revision
            return
        self._base = (
            self._written if document is None else add_samples(self._base.values(), decode_samples(document))
        )
        self._id, self._revision = None, 0

    def after_fork(self) -> None:
        """Resets the writer and its instruments in a child process after a fork. The parent process writes
        the counts made before the fork."""
        for instrument in self.instruments:
            instrument.lock = threading.Lock()  # a thread of the parent may have held the lock
            instrument.series.clear()
        self._id, self._revision, self._base, self._written, self._unconfirmed = None, 0, {}, {}, None
        self._busy = False


_WRITERS: weakref.WeakSet[SnapshotWriter] = weakref.WeakSet()


def _after_fork() -> None:
    for snapshot_writer in list(_WRITERS):
        snapshot_writer.after_fork()


os.register_at_fork(after_in_child=_after_fork)
