"""Everything there is, out of this file and into it."""

from __future__ import annotations

from msgspec.structs import astuple, replace

from tidemill.contract.copying import Copies, IdCopy, IdPage, JobCopy, PoolCopy, QueueCopy, checked
from tidemill.contract.jobs import Arrival
from tidemill.core.accounts import as_of_another_boot
from tidemill.core.courses import ADVANCING, Course
from tidemill.core.job import Job
from tidemill.core.pool_history import Remark
from tidemill.core.queues import Verdict
from tidemill.stores.sqlite import checkpoints, courses, reader
from tidemill.stores.sqlite.extend import SQL as EXTEND
from tidemill.stores.sqlite.ledger import ACCOUNTS, POOLS, remark_of
from tidemill.stores.sqlite.queues import appear
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import SQL as TRANSACTION
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("copying")
IDS_AT_ONCE = 1000


def copy_jobs(transaction: Transaction, after: int, limit: int) -> list[JobCopy]:
    """U5."""
    return [
        JobCopy(
            job=job,
            attempts=tuple(reader.attempts(transaction, job.id)),
            logs=tuple(reader.logs(transaction, job.id)),
            checkpoints=tuple(checkpoints.every(transaction, job.id)),
        )
        for job in transaction.jobs(SQL.jobs, (after, limit))
    ]


def copy_ids(transaction: Transaction, cursor: str) -> IdPage:
    """U6. The cursor is the last id of a page."""
    rows = transaction.execute(SQL.ids, (cursor, transaction.now, transaction.boot, IDS_AT_ONCE)).fetchall()
    found = tuple(
        IdCopy(request=request, verdict=Verdict(verdict), job=job, fence=fence, claim=claim)
        for request, verdict, job, fence, claim in rows
    )
    return IdPage(found, found[-1].request if len(found) == IDS_AT_ONCE else None)


def copy_in(transaction: Transaction, copies: Copies) -> None:
    """U7."""
    checked(copies)
    for name, pool in copies.pools.items():
        _take_pool(transaction, name, pool)
    for name, queue in copies.queues.items():
        _take_queue(transaction, name, queue)
    _take_ids(transaction, copies)
    for course in copies.courses:
        _take_course(transaction, course)
    known = transaction.by_id([copy.job.id for copy in copies.jobs])
    for copy in copies.jobs:
        if copy.job.id not in known:
            _take_job(transaction, copy)
    for arrival in copies.arrivals:
        _take_arrival(transaction, arrival)
    transaction.execute(SQL.fence, (copies.fence,))


def _take_ids(transaction: Transaction, copies: Copies) -> None:
    requests = [known.request for known in copies.ids]
    there = transaction.by_id(requests)
    for known in copies.ids:
        if known.request not in there and transaction.recall(known.request) is None:
            transaction.remember(known.request, known.verdict, known.job, known.fence, known.claim)


def _take_course(transaction: Transaction, course: Course) -> None:
    if courses.courses(transaction, course.kind, [course.id]) == [None]:
        transaction.execute(courses.SQL.save, courses.row_of(course))
        if course.kind in ADVANCING:
            transaction.stir(course.kind, course.id)


def _take_job(transaction: Transaction, copy: JobCopy) -> None:
    seq = transaction.next_seq()
    appear(transaction, copy.job.queue)
    transaction.add(_readable(copy.job))
    for number, attempt in enumerate(copy.attempts, 1):
        error = None if attempt.error is None else text_of(attempt.error)
        ran = (attempt.generation, attempt.attempt, attempt.started, attempt.ended)
        transaction.execute(SQL.attempt, (seq, number, *ran, attempt.worker, attempt.outcome, error))
    for line in copy.logs:
        of = (seq, line.generation, line.attempt)
        transaction.execute(EXTEND.log, (*of, *of, line.at, line.line))
    for checkpoint in copy.checkpoints:
        checkpoints.save(transaction, seq, checkpoint)


def _readable(job: Job) -> Job:
    """What an outsider sent and was refused may be anything; a column of text may not."""
    result = None if job.result is None else job.result.decode(errors="replace").encode()
    return replace(job, payload=job.payload.decode(errors="replace").encode(), result=result)


def _take_queue(transaction: Transaction, name: str, copy: QueueCopy) -> None:
    override = None if copy.override is None else text_of(copy.override)
    pause = None if copy.pause is None else text_of(copy.pause)
    transaction.execute(SQL.queue, (name, text_of(copy.declared), override, pause))
    transaction.queue_changed(name)
    for minute in copy.history:
        _, *counters = astuple(minute)
        transaction.execute(TRANSACTION.remark, (name, int(minute.at // 60), *counters))


def _take_pool(transaction: Transaction, name: str, copy: PoolCopy) -> None:
    override = None if copy.override is None else text_of(copy.override)
    transaction.execute(SQL.pool, (name, text_of(copy.declared), override))
    transaction.ledger.pool_changed(name)
    for key, account in copy.accounts.items():
        row = (name, key or "", transaction.now, text_of(as_of_another_boot(account)))
        transaction.execute(ACCOUNTS.save, row)
    for minute in copy.history:
        what = Remark(calls=minute.calls, units=minute.units, refusals=minute.refusals)
        before = transaction.execute(POOLS.minute, (name, int(minute.at // 60))).fetchone()
        total = what if before is None else remark_of(*before).plus(what)
        texts = (text_of(total.units), text_of(total.refusals))
        transaction.execute(POOLS.save_minute, (name, int(minute.at // 60), total.calls, *texts))


def _take_arrival(transaction: Transaction, arrival: Arrival) -> None:
    texts = (arrival.payload.decode(errors="replace"), arrival.options.decode(errors="replace"))
    transaction.execute(SQL.arrival, (arrival.id, arrival.task, *texts, arrival.arrived))
