"""prune: what has been kept long enough goes."""

from __future__ import annotations

from collections import Counter

from tidemill.contract.jobs import Pruned
from tidemill.contract.reader import HISTORY_KEPT
from tidemill.core import transitions
from tidemill.core.courses import Kind
from tidemill.core.job import Job
from tidemill.core.queues import HOUR
from tidemill.core.states import FINAL, State
from tidemill.core.uniqueness import holds_key
from tidemill.engine.courses import forget
from tidemill.engine.moves import move
from tidemill.engine.queue import ENDS, Queue
from tidemill.engine.records import Records


def prune(records: Records, limit: int) -> Pruned:
    """J80 to J84. First pending jobs past their expiry are cancelled, then ended jobs dropped, flows and
    theirs too, then ids forgotten; each stops at `limit`, and `more` says that one of them did."""
    now = records.clock.wall()
    expired = _expire(records, limit, now)
    pruned, early = _drop_ended(records, limit, now)
    pruned += _drop_courses(records, limit - pruned, now)
    forgotten = _forget(records, limit, now)
    return Pruned(pruned, expired, more=limit in (expired, pruned, forgotten), early=early)


def _expire(records: Records, limit: int, now: float) -> int:
    """Waiting and scheduled jobs too, the longest expired first."""
    pending = (records.jobs[id_] for id_ in records.expiring)
    over = sorted(
        (job.expires or 0.0, job.seq, job.id) for job in pending if transitions.is_expired(job, now)
    )
    for _, _, id_ in over[:limit]:
        move(records, transitions.expired(records.jobs[id_], now), now)
    return len(over[:limit])


def _drop_ended(records: Records, limit: int, now: float) -> tuple[int, dict[str, int]]:
    """Queues by name, in each its cancelled, done and failed jobs in turn. Answers how many, and by queue how
    many of them early."""
    dropped, early = 0, Counter[str]()
    for name in sorted(records.queues):
        queue = records.queues[name]
        for state in sorted(ENDS):
            retention = queue.settings.retention(state)
            for job in _outlived(records, queue, state, limit - dropped, now):
                records.drop(job)
                dropped += 1
                early[name] += retention.drops_early(job.finished or 0.0, now)
        if early[name]:
            queue.count("dropped_early", now, early[name])
    return dropped, dict(+early)


def _drop_courses(records: Records, limit: int, now: float) -> int:
    """F4. Jobs of a flow go before it, and one that is live holds it."""
    over = sorted(
        (course.until, course.kind, course.id)
        for course in records.courses.values()
        if course.until is not None and course.until <= now
    )
    dropped = 0
    for _, kind, id_ in over:
        parts = _parts(records, id_) if kind is Kind.FLOW else []
        ended = [job for job in parts if job.state in FINAL][: limit - dropped]
        for job in ended:
            records.drop(job)
        dropped += len(ended)
        if len(ended) == len(parts) and dropped < limit:
            forget(records, records.courses[kind, id_])
            dropped += 1
    return dropped


def _parts(records: Records, flow: str) -> list[Job]:
    return sorted((records.jobs[id_] for id_ in records.parts.of(flow)), key=lambda job: job.seq)


def _outlived(records: Records, queue: Queue, state: State, limit: int, now: float) -> list[Job]:
    """By age, and the oldest of what is more than `count`. A job whose key is held for a period
    stays; it counts, but another goes in its stead."""
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


def _forget(records: Records, limit: int, now: float) -> int:
    """Ids; minutes of history; workers gone for an hour that hold nothing; keys of pools at rest."""
    over = [id_ for id_, known in records.memory.items() if records.is_over(known.term)][:limit]
    for id_ in over:
        del records.memory[id_]
    oldest = (now - HISTORY_KEPT) // 60 * 60
    for queue in records.queues.values():
        for minute in [minute for minute in queue.history if minute < oldest]:
            del queue.history[minute]
    records.books.forget_minutes(oldest)
    records.books.forget_unheard(now - HOUR)
    silent_since = records.clock.boot() - HOUR
    for worker in [worker for worker, known in records.workers.items() if known.lease < silent_since]:
        if not records.running.of(worker):
            del records.workers[worker]
    records.books.forget_resting(limit)
    return len(over)
