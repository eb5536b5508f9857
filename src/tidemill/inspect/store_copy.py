"""Copies one store into another while no worker runs on either.

Jobs keep their order. To continue an interrupted copy, run it again with `resume=True`."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from tidemill.contract.copy import JobCopy, PoolCopy, QueueCopy, StoreCopy
from tidemill.contract.jobs import Arrival
from tidemill.contract.pools import PoolView
from tidemill.contract.queues import QueueInfo
from tidemill.contract.store import Store
from tidemill.core.documents import DocumentKind
from tidemill.core.states import State
from tidemill.errors import ConfigurationError
from tidemill.inspect.formatting import pluralize

JOBS_PER_READ = 100
MAX_BYTES_PER_WRITE = 4 * 1024 * 1024
"""Limits the size of one transaction, however large the payloads are."""
DOCUMENTS_PER_READ = 100
ARRIVALS_PER_READ = 500

T = TypeVar("T")

OnCopyProgress = Callable[[int], None]
"""Called from time to time with the number of jobs copied."""


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of each kind were copied.

    - `ids`: remembered ids of enqueue requests whose jobs were deleted.
    - `reclaimed`: jobs taken back from dead workers.
    - `differences`: one sentence per difference between the stores; empty if both match."""

    jobs: int
    flows: int
    schedules: int
    records: int
    ids: int
    queues: int
    pools: int
    arrivals: int
    reclaimed: int
    differences: tuple[str, ...]


async def copy_store(
    source: Store, target: Store, *, resume: bool = False, on_progress: OnCopyProgress = lambda _: None
) -> CopyReport:
    """Copies everything from `source` to `target`. Raises ConfigurationError if one of the stores has live
    workers.

    - `resume`: True if the target may contain a part of an interrupted copy; otherwise it must be empty.
    - `on_progress`: called with the number of copied jobs."""
    await _require_no_workers(source, "the source")
    await _require_no_workers(target, "the target")
    if not resume:
        await _require_empty(target)
    reclaimed = await _reclaim(source)
    queues, pools = await _copy_settings(source, target)
    ids, fence = await _copy_ids(source, target)
    jobs, fence = await _copy_jobs(source, target, on_progress, fence)
    flows, schedules, records = [await _copy_documents(source, target, kind) for kind in DocumentKind]
    arrivals = await _copy_arrivals(source, target)
    await target.copy_in(StoreCopy(fence=fence))
    return CopyReport(
        jobs=jobs,
        flows=flows,
        schedules=schedules,
        records=records,
        ids=ids,
        queues=queues,
        pools=pools,
        arrivals=arrivals,
        reclaimed=reclaimed,
        differences=tuple(await _find_differences(source, target)),
    )


async def _require_no_workers(store: Store, store_name: str) -> None:
    alive = await store.workers()
    if alive:
        names = ", ".join(worker.id for worker in alive[:3])
        raise ConfigurationError(
            f"{store_name} has {pluralize(len(alive), 'live worker')} ({names}): end them, and wait for the "
            "leases of those that were killed; jobs that change meanwhile would be lost or run twice"
        )


async def _require_empty(target: Store) -> None:
    found = {
        "jobs": await target.counts(),
        "flows": await target.document_counts(DocumentKind.FLOW),
        "schedules": await target.document_counts(DocumentKind.SCHEDULE),
        "records": await target.document_counts(DocumentKind.RECORD),
        "queues": await target.queues(),
        "pools": await target.pools(),
        "arrivals": await target.arrivals(1),
        "known ids": (await target.copy_ids()).ids,
    }
    nonempty = [what for what, rows in found.items() if rows]
    if nonempty:
        raise ConfigurationError(
            f"the target is not empty, it has {' and '.join(nonempty)}: name an empty store, or go on with "
            "--resume where this is the rest of a copy that was interrupted"
        )


async def _reclaim(source: Store) -> int:
    """Reclaims the jobs of dead workers in the source, and returns how many. Raises ConfigurationError if
    jobs still run."""
    taken = await source.reclaim()
    running = sum(states.get(State.RUNNING, 0) for states in (await source.counts()).values())
    if running:
        raise ConfigurationError(
            f"{running} jobs of the source still run, by leases of dead workers: wait for their end (30 s if "
            "nothing else was set), then copy again"
        )
    return len(taken.ready) + len(taken.poison)


async def _copy_settings(source: Store, target: Store) -> tuple[int, int]:
    queues, pools = await source.queues(), await source.pools()
    for queue in queues:
        await target.copy_in(StoreCopy(queues={queue.name: await _queue_copy(source, target, queue)}))
    views: dict[str, list[PoolView]] = {}
    for view in pools:
        views.setdefault(view.name, []).append(view)
    for name, of_pool in views.items():
        await target.copy_in(StoreCopy(pools={name: await _pool_copy(source, target, of_pool)}))
    return len(queues), len(views)


async def _queue_copy(source: Store, target: Store, queue: QueueInfo) -> QueueCopy:
    """Returns the queue's settings and history for the copy. Minutes that the target already has are left
    out, because the target would count them twice."""
    existing = {minute.at for minute in await target.history(queue.name, 0.0)}
    minutes = await source.history(queue.name, 0.0)
    return QueueCopy(
        declared=queue.declared,
        override=queue.override,
        pause=queue.pause,
        history=tuple(minute for minute in minutes if minute.at not in existing),
    )


async def _pool_copy(source: Store, target: Store, views: Sequence[PoolView]) -> PoolCopy:
    pool = views[0]
    existing = {minute.at for minute in await target.pool_history(pool.name, 0.0)}
    minutes = await source.pool_history(pool.name, 0.0)
    return PoolCopy(
        declared=pool.declared,
        override=pool.override,
        accounts={view.key: view.account for view in views if (view.key is not None) == pool.declared.keyed},
        history=tuple(minute for minute in minutes if minute.at not in existing),
    )


async def _copy_ids(source: Store, target: Store) -> tuple[int, int]:
    """Copies the remembered ids of enqueue requests whose jobs are gone. Returns how many ids were copied,
    and the highest fence among them."""
    cursor: str | None = ""
    count = fence = 0
    while cursor is not None:
        page = await source.copy_ids(cursor)
        if page.ids:
            await target.copy_in(StoreCopy(ids=page.ids))
        fence = max([fence, *(known.fence for known in page.ids)])
        count, cursor = count + len(page.ids), page.cursor
    return count, fence


async def _copy_jobs(
    source: Store, target: Store, on_progress: OnCopyProgress, fence: int
) -> tuple[int, int]:
    after = done = 0
    while jobs := await source.copy_jobs(after, JOBS_PER_READ):
        for chunk in _split_by_bytes(jobs, _bytes_of):
            fence = max([fence, *(copied.job.fence for copied in chunk)])
            await target.copy_in(StoreCopy(jobs=chunk, fence=fence))
            done += len(chunk)
            on_progress(done)
        after = jobs[-1].job.seq
    return done, fence


def _bytes_of(copied: JobCopy) -> int:
    result_bytes = sum(len(checkpoint.result or b"") for checkpoint in copied.checkpoints)
    return len(copied.job.payload) + len(copied.job.result or b"") + result_bytes


async def _copy_documents(source: Store, target: Store, kind: DocumentKind) -> int:
    """Copies all documents of one kind and returns how many. Jobs are copied before documents, so that a
    copied flow always finds its jobs."""
    cursor: str | None = None
    count = 0
    while True:
        page = await source.find_documents(kind, limit=DOCUMENTS_PER_READ, cursor=cursor)
        for chunk in _split_by_bytes(page.documents, lambda document: len(document.record)):
            await target.copy_in(StoreCopy(documents=chunk))
        count, cursor = count + len(page.documents), page.cursor
        if cursor is None:
            return count


def _split_by_bytes(items: Sequence[T], bytes_of: Callable[[T], int]) -> Iterator[list[T]]:
    chunk: list[T] = []
    size = 0
    for item in items:
        item_bytes = bytes_of(item)
        if chunk and size + item_bytes > MAX_BYTES_PER_WRITE:
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += item_bytes
    if chunk:
        yield chunk


async def _copy_arrivals(source: Store, target: Store) -> int:
    existing = {arrival.id async for arrival in _iterate_arrivals(target)}
    count = 0
    chunk: list[Arrival] = []
    async for arrival in _iterate_arrivals(source):
        count += 1
        if arrival.id not in existing:
            chunk.append(arrival)
        if len(chunk) == ARRIVALS_PER_READ:
            await target.copy_in(StoreCopy(arrivals=chunk))
            chunk = []
    if chunk:
        await target.copy_in(StoreCopy(arrivals=chunk))
    return count


async def _iterate_arrivals(store: Store) -> AsyncIterator[Arrival]:
    after = 0
    while found := await store.arrivals(ARRIVALS_PER_READ, after):
        for arrival in found:
            yield arrival
        after = found[-1].seq


async def _find_differences(source: Store, target: Store) -> list[str]:
    """Returns one sentence for each row count that differs between the stores. A difference means that rows
    were added to the source during the copy."""
    source_counts, target_counts = await _count_rows(source), await _count_rows(target)
    return [
        f"{where} {source_counts[where, what]} {what} in the source and {target_counts[where, what]} in the "
        "target"
        for where, what in sorted(source_counts.keys() | target_counts.keys())
        if source_counts[where, what] != target_counts[where, what]
    ]


async def _count_rows(store: Store) -> Counter[tuple[str, str]]:
    """Returns the number of jobs per queue and state, and of documents per kind and state.

    A key is the text before and the text after the number: ("queue 'feeds' has", "ready jobs")."""
    found: Counter[tuple[str, str]] = Counter()
    for queue, states in (await store.counts()).items():
        for state, jobs in states.items():
            found[f"queue {queue!r} has", f"{state} jobs"] = jobs
    for kind in DocumentKind:
        for word, documents in (await store.document_counts(kind)).items():
            found["there are", f"{word} {kind}s"] = documents
    return found
