"""One plain ready job in one insert: the commonest call, as one appended row.

A row of the inbox is an accepted job that has not been filed yet. Every step that is about
jobs files what is there first, so the inbox is never seen from outside; an insert that finds it
long files it too, so no step ever has much to file. Whatever is out of the ordinary (a unique
key, a pool, a batch, a flow, a delay, a length limit, an id that is remembered) is left to the general way.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from tidemill.core.job import Group, problem_with
from tidemill.core.queues import Inserted, Verdict
from tidemill.core.states import State
from tidemill.stores.sqlite.insert import known_ids, write_rows
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("inbox")
LONG = 256


def append(connection: apsw.Connection, now: float, groups: Sequence[Group]) -> list[list[Inserted]] | None:
    """None when the job needs the general way; nothing has changed then."""
    if len(groups) != 1 or len(groups[0].jobs) != 1:
        return None
    group = groups[0]
    (job,) = group.jobs
    if job.unique is not None or job.needs or job.batching is not None or job.flow is not None:
        return None
    if job.delay or job.at is not None:
        return None
    if problem_with(group) is not None:
        return None
    row = (
        job.id, group.queue, job.task, job.payload.decode(), job.priority, job.key or "", now,
        None if job.expires is None else now + job.expires,
        job.timeout, job.trace, text_of(job.tags) if job.tags else None,
    )  # fmt: skip
    connection.execute(SQL.append, row)
    # A job of that id may exist already: then this was its first verdict too.
    return [[Inserted(Verdict.ACCEPTED, job.id)]] if connection.changes() else None


def is_long(connection: apsw.Connection) -> bool:
    """Asked right after an append. Rows are numbered anew when the inbox has been emptied."""
    return connection.last_insert_rowid() >= LONG


def has_anything(connection: apsw.Connection) -> bool:
    return bool(connection.execute(SQL.anything).get)


def file(transaction: Transaction) -> None:
    """Every job of the inbox takes its place in line, in the order they came."""
    if not has_anything(transaction.connection):
        return
    if transaction.execute(SQL.repeats).get:
        _file_one_by_one(transaction)
        return
    for queue, lane, jobs in transaction.execute(SQL.per_lane).fetchall():
        transaction.counted(queue, None, State.READY, jobs)
        transaction.touch(queue, lane)
    transaction.execute(SQL.file, (transaction.next_seq() - 1,))
    transaction.execute(SQL.empty)
    transaction.refresh_lanes()


def _file_one_by_one(transaction: Transaction) -> None:
    """Of a job that was sent twice the first counts."""
    arrived = {row[0]: row for row in reversed(transaction.execute(SQL.all).fetchall())}
    transaction.execute(SQL.empty)
    known = known_ids(transaction, arrived)
    write_rows(transaction, [row for name, row in reversed(arrived.items()) if name not in known])
