"""The store method `prune`: deletes finished jobs, documents, remembered ids and other rows that were kept
long enough."""

from __future__ import annotations

from collections import Counter
from heapq import nsmallest

from tidemill.contract.jobs import PruneResult
from tidemill.contract.reader import HISTORY_SECONDS
from tidemill.core import transitions
from tidemill.core.documents import DocumentKind
from tidemill.core.jobs import Job
from tidemill.core.queues import HOUR_SECONDS
from tidemill.core.states import FINAL, State
from tidemill.core.unique_keys import holds_key
from tidemill.engine.advance import forget_document
from tidemill.engine.queue import FINAL_STATES, Queue
from tidemill.engine.records import Records, move_job


def prune(records: Records, limit: int) -> PruneResult:
    """Cancels expired jobs, deletes finished jobs and expired documents, and deletes old ids of enqueue
    requests (J80 to J84). Each of these three parts handles at most `limit` rows.

    `more` in the result is True if one part reached `limit`."""
    now = records.clock.wall()
    expired = _expire(records, limit, now)
    pruned, early = _drop_ended(records, limit, now)
    pruned += _drop_documents(records, limit - pruned, now)
    forgotten = _forget_old(records, limit, now)
    return PruneResult(pruned, expired, more=limit in (expired, pruned, forgotten), early=early)


def _expire(records: Records, limit: int, now: float) -> int:
    """Cancels pending jobs that have expired, the longest expired first. Returns how many were cancelled."""
    pending = (records.jobs[id_] for id_ in records.expiring)
    over = sorted(
        (job.expires or 0.0, job.seq, job.id) for job in pending if transitions.is_expired(job, now)
    )
    for _, _, id_ in over[:limit]:
        move_job(records, transitions.expire_job(records.jobs[id_], now), now)
    return len(over[:limit])


def _drop_ended(records: Records, limit: int, now: float) -> tuple[int, dict[str, int]]:
    """Deletes finished jobs by retention. Returns how many were deleted. Also returns, by queue, how many
    were deleted early because the queue had too many."""
    dropped, early = 0, Counter[str]()
    for name in sorted(records.queues):
        queue = records.queues[name]
        for state in sorted(FINAL_STATES):
            retention = queue.settings.retention(state)
            for job in _jobs_over_retention(records, queue, state, limit - dropped, now):
                records.drop(job)
                dropped += 1
                early[name] += retention.drops_early(job.finished or 0.0, now)
        if early[name]:
            queue.count("dropped_early", now, early[name])
    return dropped, dict(+early)


def _drop_documents(records: Records, limit: int, now: float) -> int:
    """Deletes documents whose `until` has passed (F4). Returns how many jobs and documents were deleted. A
    flow with a live job is kept."""
    over = sorted(
        (document.until, document.kind, document.id)
        for document in records.documents.values()
        if document.until is not None and document.until <= now
    )
    dropped = 0
    for _, kind, id_ in over:
        flow_jobs = _jobs_of_flow(records, id_) if kind is DocumentKind.FLOW else []
        ended = [job for job in flow_jobs if job.state in FINAL][: limit - dropped]
        for job in ended:
            records.drop(job)
        dropped += len(ended)
        if len(ended) == len(flow_jobs) and dropped < limit:
            forget_document(records, records.documents[kind, id_])
            dropped += 1
    return dropped


def _jobs_of_flow(records: Records, flow: str) -> list[Job]:
    return sorted((records.jobs[id_] for id_ in records.flow_jobs.of(flow)), key=lambda job: job.seq)


def _jobs_over_retention(records: Records, queue: Queue, state: State, limit: int, now: float) -> list[Job]:
    """Returns up to `limit` finished jobs of one state to delete, oldest first. These are jobs that are too
    old, and jobs beyond the retention's `count`. A job that still holds its unique key is kept."""
    retention, ended = queue.settings.retention(state), queue.ended[state]
    surplus = 0 if retention.count is None else max(0, len(ended) - retention.count)
    oldest_kept = retention.oldest_kept(now)
    found: list[Job] = []
    for finished, _, id_ in ended.walk():
        if len(found) >= limit or (finished > oldest_kept and len(found) >= surplus):
            break
        if not holds_key(records.jobs[id_], now):
            found.append(records.jobs[id_])
    return found


def _expired_ids(records: Records, limit: int) -> list[str]:
    """Examines the `limit` remembered ids that expired first on the wall clock. Returns the ids that have
    also expired on the boot clock (J82)."""
    ended = [
        (known.term.wall, id_)
        for id_, known in records.memory.items()
        if known.term.wall <= records.clock.wall()
    ]
    return [id_ for _, id_ in nsmallest(limit, ended) if records.is_over(records.memory[id_].term)]


def _forget_old(records: Records, limit: int, now: float) -> int:
    """Deletes old ids of enqueue requests, old history, workers that stopped long ago, and unused accounts.
    Returns how many ids were deleted, at most `limit`."""
    over = _expired_ids(records, limit)
    for id_ in over:
        del records.memory[id_]
    oldest = (now - HISTORY_SECONDS) // 60 * 60
    for queue in records.queues.values():
        for minute in [minute for minute in queue.history if minute < oldest]:
            del queue.history[minute]
    records.pool_ledger.forget_minutes(oldest)
    records.pool_ledger.forget_unconfirmed(now - HOUR_SECONDS)
    silent_since = records.clock.boot() - HOUR_SECONDS
    for worker in [worker for worker, known in records.workers.items() if known.lease < silent_since]:
        if not records.running.of(worker):
            del records.workers[worker]
    records.pool_ledger.forget_idle_keys(limit)
    return len(over)
