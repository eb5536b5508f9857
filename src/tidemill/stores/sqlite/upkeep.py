"""Looking after the file: what it is, whether it is whole, giving space back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import apsw

from tidemill.contract.upkeep import StoreFacts
from tidemill.core.recount import miscounted
from tidemill.stores.sqlite import place
from tidemill.stores.sqlite.file import DatabaseFile
from tidemill.stores.sqlite.ledger import account_of, reservation_of
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("upkeep")


def describe(transaction: Transaction, file: DatabaseFile) -> StoreFacts:
    path = file.path
    pragma = transaction.connection.pragma
    files = (path, path.with_name(f"{path.name}-wal"))
    return StoreFacts(
        kind="sqlite",
        engine=f"SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})",
        location=str(path.absolute()),
        schema=pragma("user_version"),
        bytes=sum(each.stat().st_size for each in files if each.exists()),
        free_bytes=pragma("freelist_count") * pragma("page_size"),
        warnings=tuple(place.warnings(path, pragma("journal_mode"), file.mode)),
    )


def check(transaction: Transaction) -> tuple[str, ...]:
    """What SQLite finds first: tables that cannot be read need not agree with each other."""
    try:
        found = [line for (line,) in transaction.execute("PRAGMA integrity_check")]
    except apsw.CorruptError as error:
        found = [str(error)]
    if found != ["ok"]:
        return tuple(f"SQLite finds the file damaged: {line}" for line in found)
    return (
        *_miscounted(transaction),
        *_lanes(transaction),
        *_pools(transaction),
        *_orphans(transaction),
    )


def _miscounted(transaction: Transaction) -> Iterator[str]:
    counted = {(queue, state): jobs for queue, state, jobs in transaction.execute(SQL.counted)}
    recounted = {(queue, state): jobs for queue, state, jobs in transaction.execute(SQL.recount)}
    for queue, state in sorted(counted.keys() | recounted.keys()):
        says, has = counted.get((queue, state), 0), recounted.get((queue, state), 0)
        if says != has:
            yield f"queue {queue!r} counts {says} {state} jobs but has {has}"


def _lanes(transaction: Transaction) -> Iterator[str]:
    for queue, lane in transaction.execute(SQL.lost_lanes):
        yield f"queue {queue!r} has ready jobs with the key {lane!r} that no worker would find"
    for queue, lane in transaction.execute(SQL.wrong_heads):
        yield f"queue {queue!r} does not start the jobs with the key {lane!r} in their order"


def _pools(transaction: Transaction) -> Iterator[str]:
    for job, pool in transaction.execute(SQL.ownerless):
        yield f"pool {pool!r} keeps units for job {job!r}, which does not run with them"
    for pool, key, text in transaction.execute(SQL.accounts).fetchall():
        row = transaction.ledger.pool(pool)
        kept = [reservation_of(one) for (one,) in transaction.execute(SQL.reserved, (pool, key))]
        at = pool if not key else f"{pool} ({key})"
        if row is not None:
            yield from miscounted(at, row.declared.limits, account_of(text).state, kept)


def _orphans(transaction: Transaction) -> Iterator[str]:
    for jobs, steps in transaction.execute(SQL.orphans):
        if steps:
            yield f"{steps} checkpoints are kept of {jobs} jobs that are gone"
    for kind, courses, stirs in transaction.execute(SQL.stale_stirs):
        yield f"{stirs} ends are kept of {courses} {kind}s that are gone"


def compact(connection: apsw.Connection) -> None:
    """The copy VACUUM makes goes to a file: in memory it would take as much as the store. Then the log,
    which holds the new file once more, is written back; where somebody still reads, that is done later."""
    connection.pragma("temp_store", "file")
    try:
        connection.execute("VACUUM")
    finally:
        connection.pragma("temp_store", "memory")
    with contextlib.suppress(apsw.BusyError):
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
