"""Adds up the snapshots of ended processes, and the history (counters per minute) that the store will delete.
The exported counters therefore never fall."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from tidemill.contract.pools import PoolMinute
from tidemill.contract.reader import QueueMinute
from tidemill.contract.store import Store
from tidemill.core.documents import Document
from tidemill.core.pool_statistics import PoolHistoryEntry
from tidemill.core.queues import DAY_SECONDS, HOUR_SECONDS
from tidemill.metrics.families import MetricSamples, add_samples
from tidemill.metrics.snapshots import (
    SNAPSHOT_DOCUMENT,
    STATE_SEALED,
    SUM_DOCUMENT,
    TOTALS_DOCUMENT,
    SnapshotSum,
    decode_samples,
    delete_document,
    iter_snapshots,
    load_document,
    save_document,
    write_document,
)

ROLLUP_INTERVAL_SECONDS = 600.0
"""A snapshot that did not change for this long is rolled up, whether or not its process still runs."""


async def load_samples(store: Store) -> dict[str, MetricSamples]:
    """Returns the metrics of all processes by metric name. The result adds up the stored snapshots and the
    sum of the snapshots that were rolled up."""
    snapshots = [document async for document in iter_snapshots(store)]
    # Read after the snapshots: it names those rolled up between the two reads, so none is counted twice.
    _, total = await load_document(store, SUM_DOCUMENT, SnapshotSum)
    fresh = [decode_samples(document) for document in snapshots if document.id not in total.rolled_up]
    return add_samples(*fresh, total.counted)


class SnapshotRollup:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, int] = {}

    async def fold(self) -> None:
        snapshots = [document async for document in iter_snapshots(self._store)]
        sealed = [
            document
            for document in snapshots
            if document.state == STATE_SEALED or await self._seal(document, self._seen.get(document.id))
        ]
        self._seen = {document.id: document.revision for document in snapshots}
        if await self._add(sealed, {document.id for document in snapshots}):
            for document in [
                document async for document in iter_snapshots(self._store) if document.state == STATE_SEALED
            ]:
                await self._forget_if_added(document)

    async def _seal(self, document: Document, seen: int | None) -> bool:
        if seen != document.revision:
            return False
        sealed = await write_document(
            self._store,
            document.id,
            document.revision,
            name=SNAPSHOT_DOCUMENT,
            state=STATE_SEALED,
            record=document.record,
        )
        return sealed.done

    async def _add(self, sealed: Sequence[Document], stored_ids: set[str]) -> bool:
        revision, total = await load_document(self._store, SUM_DOCUMENT, SnapshotSum)
        fresh = [document for document in sealed if document.id not in total.rolled_up]
        named = tuple(id_ for id_ in total.rolled_up if id_ in stored_ids)
        if not fresh and named == total.rolled_up:
            return bool(named)
        then = SnapshotSum(
            tuple(add_samples(*map(decode_samples, fresh), total.counted).values()),
            (*named, *(document.id for document in fresh)),
        )
        return await save_document(self._store, SUM_DOCUMENT, revision, then)

    async def _forget_if_added(self, document: Document) -> None:
        _, total = await load_document(self._store, SUM_DOCUMENT, SnapshotSum)
        if document.id in total.rolled_up:
            await delete_document(self._store, document)


COMPLETE_AFTER_SECONDS = DAY_SECONDS + HOUR_SECONDS
"""Minutes older than this no longer change."""
TOTALS_INTERVAL_SECONDS = HOUR_SECONDS


class QueueTotal(msgspec.Struct, frozen=True):
    """Counts of a queue's jobs since the store was created, including pruned and deleted jobs.

    - `failed`: jobs that failed for good
    - `retried`: failed attempts that were repeated
    - `reclaimed`: attempts whose worker died or fell silent
    - `dropped_early`: jobs deleted before their age allowed it, because the queue had too many finished
      jobs"""

    done: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    reclaimed: int = 0
    dropped_early: int = 0

    def plus(self, minutes: Iterable[QueueMinute]) -> QueueTotal:
        sums = [self.done, self.failed, self.cancelled, self.retried, self.reclaimed, self.dropped_early]
        for minute in minutes:
            sums[0] += minute.done
            sums[1] += minute.failed
            sums[2] += minute.cancelled
            sums[3] += minute.retried
            sums[4] += minute.reclaimed
            sums[5] += minute.dropped_early
        return QueueTotal(*sums)


class HistoryTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals by queue and by pool, added up from the history (the store's counters per minute). `through` is
    a wall time: the totals include all minutes before it."""

    through: float = 0.0
    queues: dict[str, QueueTotal] = msgspec.field(default_factory=dict)
    pools: dict[str, PoolHistoryEntry] = msgspec.field(default_factory=dict)


async def load_totals(store: Store, queues: Iterable[str], pools: Iterable[str]) -> HistoryTotals:
    _, totals = await load_document(store, TOTALS_DOCUMENT, HistoryTotals)
    return await _add_minutes(store, totals, queues, pools, before=math.inf)


async def save_totals(store: Store) -> None:
    """Adds the counters of minutes older than 25 hours to the stored totals; these counters no longer
    change."""
    revision, totals = await load_document(store, TOTALS_DOCUMENT, HistoryTotals)
    before = ((await store.read_clock()).wall - COMPLETE_AFTER_SECONDS) // 60 * 60
    if before <= totals.through:
        return
    queues = [info.name for info in await store.queues()]
    pools = {view.name for view in await store.pools()}
    then = await _add_minutes(store, totals, queues, pools, before=before)
    if (then.queues, then.pools) != (totals.queues, totals.pools):
        await save_document(store, TOTALS_DOCUMENT, revision, then)


async def _add_minutes(
    store: Store, totals: HistoryTotals, queues: Iterable[str], pools: Iterable[str], *, before: float
) -> HistoryTotals:
    ended, spent = dict(totals.queues), dict(totals.pools)
    for queue in queues:
        if minutes := [minute for minute in await store.history(queue, totals.through) if minute.at < before]:
            ended[queue] = ended.get(queue, QueueTotal()).plus(minutes)
    for pool in pools:
        if calls := [
            minute for minute in await store.pool_history(pool, totals.through) if minute.at < before
        ]:
            spent[pool] = _add_pool_minutes(spent.get(pool, PoolHistoryEntry()), calls)
    return HistoryTotals(through=before, queues=ended, pools=spent)


def _add_pool_minutes(before: PoolHistoryEntry, minutes: Iterable[PoolMinute]) -> PoolHistoryEntry:
    total = before
    for minute in minutes:
        total = total.plus(PoolHistoryEntry(calls=minute.calls, units=minute.units, refusals=minute.refusals))
    return total


class MetricsRollup:
    """Adds up the snapshots of ended processes every ten minutes, and old minutes of the history every hour.
    `time` returns the event loop's time in seconds."""

    def __init__(self, store: Store, time: Callable[[], float]) -> None:
        self._store, self._time = store, time
        self._snapshot_rollup = SnapshotRollup(store)
        self._saved_at = self._folded = -math.inf

    async def keep(self) -> None:
        now = self._time()
        if now - self._saved_at >= TOTALS_INTERVAL_SECONDS:
            await save_totals(self._store)
            self._saved_at = now
        if now - self._folded >= ROLLUP_INTERVAL_SECONDS:
            await self._snapshot_rollup.fold()
            self._folded = now
