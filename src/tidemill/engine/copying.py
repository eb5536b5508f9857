"""What another store held is taken in."""

from __future__ import annotations

from collections import Counter, deque

from msgspec.structs import replace

from tidemill.contract.copying import Copies, JobCopy, PoolCopy, QueueCopy, checked
from tidemill.contract.reader import ATTEMPTS_KEPT, LOG_LINES
from tidemill.contract.wakeups import queue_topic
from tidemill.core.accounts import as_of_another_boot
from tidemill.core.courses import ADVANCING
from tidemill.core.pool_history import Remark
from tidemill.core.states import State
from tidemill.engine.ledger import Books, Pool
from tidemill.engine.queue import Queue
from tidemill.engine.records import Records


def copy_in(records: Records, copies: Copies) -> None:
    """U7, but for arrivals and the fence, which stores keep each in its own way."""
    checked(copies)
    for name, pool in copies.pools.items():
        _take_pool(records.books, name, pool)
    for name, queue in copies.queues.items():
        _take_queue(records.queue(name), queue)
    for known in copies.ids:
        if known.request not in records.jobs and records.recall(known.request) is None:
            records.remember(known.request, known.verdict, known.job, known.fence, known.claim)
    for course in copies.courses:
        if (course.kind, course.id) not in records.courses:
            records.put_course(course)
            if course.kind in ADVANCING:
                records.stir(course.kind, course.id)
    for copy in copies.jobs:
        if copy.job.id not in records.jobs:
            _take_job(records, copy)


def _take_job(records: Records, copy: JobCopy) -> None:
    job = replace(copy.job, seq=records.next_seq())
    records.put(job)
    if copy.attempts:
        records.attempts[job.id] = deque(copy.attempts, maxlen=ATTEMPTS_KEPT)
    for line in copy.logs:
        of_job = records.logs.setdefault(job.id, {})
        of_job.setdefault((line.generation, line.attempt), deque(maxlen=LOG_LINES)).append(line)
    if copy.checkpoints:
        records.checkpoints[job.id] = {kept.step: kept for kept in copy.checkpoints}
    if job.state in (State.READY, State.SCHEDULED):
        records.topics[queue_topic(job.queue)] = None


def _take_queue(queue: Queue, copy: QueueCopy) -> None:
    queue.declared, queue.override, queue.pause = copy.declared, copy.override, copy.pause
    for minute in copy.history:
        counted = queue.history.setdefault(minute.at, Counter())
        for what in ("done", "failed", "cancelled", "retried", "reclaimed", "dropped_early"):
            counted[what] += getattr(minute, what)


def _take_pool(books: Books, name: str, copy: PoolCopy) -> None:
    books.pools[name] = Pool(copy.declared, copy.override)
    for key, account in copy.accounts.items():
        books.save((name, key), as_of_another_boot(account))
    minutes = books.history.setdefault(name, {})
    for minute in copy.history:
        what = Remark(calls=minute.calls, units=minute.units, refusals=minute.refusals)
        minutes[minute.at] = minutes.get(minute.at, Remark()).plus(what)
