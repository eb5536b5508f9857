"""The store method `copy_in`: inserts the content of another store."""

from __future__ import annotations

from collections import Counter, deque

from msgspec.structs import replace

from tidemill.contract.coordination import queue_topic
from tidemill.contract.copy import JobCopy, PoolCopy, QueueCopy, StoreCopy, check_copies
from tidemill.contract.reader import ATTEMPTS_KEPT, LOG_LINES_PER_ATTEMPT
from tidemill.core.accounts import mark_other_boot
from tidemill.core.documents import ADVANCED_KINDS
from tidemill.core.pool_statistics import PoolHistoryEntry
from tidemill.core.states import State
from tidemill.engine.ledger import PoolLedger, PoolRecord
from tidemill.engine.queue import Queue
from tidemill.engine.records import Records


def copy_in(records: Records, copies: StoreCopy) -> None:
    """Inserts the content of another store (U7). Arrivals and the fence are not handled here, because each
    store keeps them in its own way."""
    check_copies(copies)
    for name, pool in copies.pools.items():
        _copy_pool(records.pool_ledger, name, pool)
    for name, queue in copies.queues.items():
        _copy_queue(records.queue(name), queue)
    for known in copies.ids:
        if known.request not in records.jobs and records.find_known_id(known.request) is None:
            records.remember(known.request, known.verdict, known.job, known.fence, known.claim)
    for document in copies.documents:
        if (document.kind, document.id) not in records.documents:
            records.put_document(document)
            if document.kind in ADVANCED_KINDS:
                records.mark_work(document.kind, document.id)
    for copy in copies.jobs:
        if copy.job.id not in records.jobs:
            _copy_job(records, copy)


def _copy_job(records: Records, copy: JobCopy) -> None:
    job = replace(copy.job, seq=records.next_seq())
    records.put(job)
    if copy.attempts:
        records.attempts[job.id] = deque(copy.attempts, maxlen=ATTEMPTS_KEPT)
    for line in copy.logs:
        of_job = records.logs.setdefault(job.id, {})
        of_job.setdefault((line.generation, line.attempt), deque(maxlen=LOG_LINES_PER_ATTEMPT)).append(line)
    if copy.checkpoints:
        records.checkpoints[job.id] = {checkpoint.step: checkpoint for checkpoint in copy.checkpoints}
    if job.state in (State.READY, State.SCHEDULED):
        records.topics[queue_topic(job.queue)] = None


def _copy_queue(queue: Queue, copy: QueueCopy) -> None:
    queue.declared, queue.override, queue.pause = copy.declared, copy.override, copy.pause
    for minute in copy.history:
        counted = queue.history.setdefault(minute.at, Counter())
        for what in ("done", "failed", "cancelled", "retried", "reclaimed", "dropped_early"):
            counted[what] += getattr(minute, what)


def _copy_pool(pool_ledger: PoolLedger, name: str, copy: PoolCopy) -> None:
    pool_ledger.pools[name] = PoolRecord(copy.declared, copy.override)
    for key, account in copy.accounts.items():
        pool_ledger.save((name, key), mark_other_boot(account))
    minutes = pool_ledger.history.setdefault(name, {})
    for minute in copy.history:
        what = PoolHistoryEntry(calls=minute.calls, units=minute.units, refusals=minute.refusals)
        minutes[minute.at] = minutes.get(minute.at, PoolHistoryEntry()).plus(what)
