"""Fast path for inserting a single ready job: appends one row to the table `inbox`.

A row of the inbox is an accepted job that is not yet in the table `jobs`. Every transaction that deals with
jobs first moves these rows into `jobs`. Special jobs, such as jobs with a unique key or a pool, do not use
the inbox; `insert.py` inserts them."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from tidemill.core.jobs import JobGroup, problem_with_group
from tidemill.core.queues import InsertResult, InsertVerdict
from tidemill.core.states import State
from tidemill.stores.sqlite.insert import known_ids, write_rows
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load_statements
from tidemill.stores.sqlite.transaction import SqliteTransaction

SQL = load_statements("inbox")
MAX_INBOX_ROWS = 256


def append_job(
    connection: apsw.Connection, now: float, groups: Sequence[JobGroup]
) -> list[list[InsertResult]] | None:
    """Appends one job to the inbox and returns its insert result. Returns None and changes nothing if
    `insert.py` must insert the jobs. `now`: the wall time."""
    if len(groups) != 1 or len(groups[0].jobs) != 1:
        return None
    group = groups[0]
    (job,) = group.jobs
    if job.unique is not None or job.needs or job.batching is not None or job.flow is not None:
        return None
    if job.delay or job.at is not None:
        return None
    if problem_with_group(group) is not None:
        return None
    row = (
        job.id, group.queue, job.task, job.payload.decode(), job.priority, job.key or "", now,
        None if job.expires is None else now + job.expires,
        job.timeout, job.trace, text_of(job.tags) if job.tags else None,
    )  # fmt: skip
    connection.execute(SQL.append, row)
    # If a job of this id exists already, "accepted" was its first verdict too.
    return [[InsertResult(InsertVerdict.ACCEPTED, job.id)]] if connection.changes() else None


def is_full(connection: apsw.Connection) -> bool:
    """True if the inbox has at least 256 rows. Call this right after an append: the function looks at the row
    id of the last insert."""
    return connection.last_insert_rowid() >= MAX_INBOX_ROWS


def has_jobs(connection: apsw.Connection) -> bool:
    return bool(connection.execute(SQL.has_rows).get)


def move_to_jobs(transaction: SqliteTransaction) -> None:
    """Moves all rows of the inbox into the table of jobs, oldest row first."""
    if not has_jobs(transaction.connection):
        return
    if transaction.execute(SQL.has_duplicates).get:
        _move_one_by_one(transaction)
        return
    for queue, lane, jobs in transaction.execute(SQL.per_lane).fetchall():
        transaction.count_change(queue, None, State.READY, jobs)
        transaction.touch(queue, lane)
    transaction.execute(SQL.move, (transaction.next_seq() - 1,))
    transaction.execute(SQL.empty)
    transaction.refresh_lanes()


def _move_one_by_one(transaction: SqliteTransaction) -> None:
    """Moves the rows of the inbox one by one, because some job ids occur twice or exist already. Only the
    first row of a new id becomes a job."""
    arrived = {row[0]: row for row in reversed(transaction.execute(SQL.all).fetchall())}
    transaction.execute(SQL.empty)
    known = known_ids(transaction, arrived)
    write_rows(transaction, [row for name, row in reversed(arrived.items()) if name not in known])
