"""Describes, checks, backs up and compacts the store, and copies its content to or from another store."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
from msgspec.structs import astuple, replace

from tidemill.contract.copy import IdCopy, IdPage, JobCopy, PoolCopy, QueueCopy, StoreCopy, check_copies
from tidemill.contract.jobs import Arrival
from tidemill.contract.store import StoreFacts
from tidemill.core.accounts import mark_other_boot
from tidemill.core.documents import ADVANCED_KINDS, Document
from tidemill.core.jobs import Job
from tidemill.core.pool_statistics import PoolHistoryEntry, wrong_counts
from tidemill.core.queues import InsertVerdict
from tidemill.errors import ConfigurationError
from tidemill.stores.sqlite import checkpoints, documents, reader
from tidemill.stores.sqlite import file as sqlite_file
from tidemill.stores.sqlite.errors import translate_errors
from tidemill.stores.sqlite.file import DatabaseFile
from tidemill.stores.sqlite.leases import HEARTBEAT_SQL
from tidemill.stores.sqlite.ledger import ACCOUNTS, account_of, pool_minute_of, reservation_of
from tidemill.stores.sqlite.queues import add_queue
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.settings_cache import POOLS
from tidemill.stores.sqlite.statements import load_statements
from tidemill.stores.sqlite.transaction import SQL as TRANSACTION
from tidemill.stores.sqlite.transaction import SqliteTransaction

SQL = load_statements("maintenance")


def describe(transaction: SqliteTransaction, file: DatabaseFile) -> StoreFacts:
    path = file.path
    pragma = transaction.connection.pragma
    files = (path, path.with_name(f"{path.name}-wal"))
    return StoreFacts(
        kind="sqlite",
        engine=f"SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})",
        location=str(path.absolute()),
        schema=pragma("user_version"),
        bytes=sum(file_path.stat().st_size for file_path in files if file_path.exists()),
        free_bytes=pragma("freelist_count") * pragma("page_size"),
        warnings=tuple(sqlite_file.file_warnings(path, pragma("journal_mode"), file.mode)),
    )


def check(transaction: SqliteTransaction) -> tuple[str, ...]:
    """Returns one sentence for each inconsistency; empty if the store is sound. If SQLite itself reports a
    damaged file, only that damage is returned."""
    try:
        found = [line for (line,) in transaction.execute("PRAGMA integrity_check")]
    except apsw.CorruptError as error:
        found = [str(error)]
    if found != ["ok"]:
        return tuple(f"SQLite finds the file damaged: {line}" for line in found)
    return (
        *_check_counts(transaction),
        *_check_lanes(transaction),
        *_check_pools(transaction),
        *_check_orphans(transaction),
    )


def _check_counts(transaction: SqliteTransaction) -> Iterator[str]:
    stored = {(queue, state): jobs for queue, state, jobs in transaction.execute(SQL.counters)}
    restored = {(queue, state): jobs for queue, state, jobs in transaction.execute(SQL.recount)}
    for queue, state in sorted(stored.keys() | restored.keys()):
        stored_count, found = stored.get((queue, state), 0), restored.get((queue, state), 0)
        if stored_count != found:
            yield f"queue {queue!r} counts {stored_count} {state} jobs but has {found}"


def _check_lanes(transaction: SqliteTransaction) -> Iterator[str]:
    for queue, lane in transaction.execute(SQL.lost_lanes):
        yield f"queue {queue!r} has ready jobs with the key {lane!r} that no worker would find"
    for queue, lane in transaction.execute(SQL.wrong_heads):
        yield f"queue {queue!r} does not start the jobs with the key {lane!r} in their order"


def _check_pools(transaction: SqliteTransaction) -> Iterator[str]:
    for job, pool in transaction.execute(SQL.orphaned_reservations):
        yield f"pool {pool!r} keeps units for job {job!r}, which does not run with them"
    for pool, key, text in transaction.execute(SQL.accounts).fetchall():
        row = transaction.ledger.pool(pool)
        reservations = [
            reservation_of(stored) for (stored,) in transaction.execute(SQL.reserved, (pool, key))
        ]
        at = pool if not key else f"{pool} ({key})"
        if row is not None:
            yield from wrong_counts(at, row.declared.limits, account_of(text).state, reservations)


def _check_orphans(transaction: SqliteTransaction) -> Iterator[str]:
    for jobs, steps in transaction.execute(SQL.orphans):
        if steps:
            yield f"{steps} checkpoints are kept of {jobs} jobs that are gone"
    for kind, count, work_marks in transaction.execute(SQL.stale_work):
        yield f"{work_marks} job changes are kept of {count} {kind}s that are gone"


def compact(connection: apsw.Connection) -> None:
    """Rewrites the file without its free pages, and then truncates the write-ahead log. If a reader blocks
    the truncation, SQLite truncates the log later."""
    # VACUUM copies the database; a copy in memory would need as much space as the store
    connection.pragma("temp_store", "file")
    try:
        connection.execute("VACUUM")
    finally:
        connection.pragma("temp_store", "memory")
    with contextlib.suppress(apsw.BusyError):
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


_PAGES_PER_STEP = 1000


def back_up(source: apsw.Connection, target: Path, progress: Callable[[float], None] | None) -> None:
    """Copies the database to the new file `target`. `source` must be in a read transaction, so that no write
    gets into the copy. `progress` is called with the finished share, from 0 to 1."""
    source.pragma("schema_version")  # a snapshot begins with the first read
    part = target.with_name(f"{target.name}.part")
    _refuse_existing(target)
    _reserve(target, part, Path(source.db_filename("main")).stat().st_mode)
    try:
        with translate_errors(target):
            _copy(source, part, progress)
        _sync(part)
        _refuse_existing(target)
        part.rename(target)
        _sync(target.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _reserve(target: Path, part: Path, mode: int) -> None:
    """Creates the empty file `part`, which is renamed to `target` when the backup is complete. Raises
    ConfigurationError if `part` exists or cannot be created."""
    try:
        opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
        try:
            os.fchmod(opened, stat.S_IMODE(mode))
        finally:
            os.close(opened)
    except FileExistsError:
        raise ConfigurationError(
            f"{part}: another backup is being written here, or one was interrupted; delete it and try again"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{target}: no backup can be written there: {error.strerror}") from None


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise ConfigurationError(f"{target}: there is such a file already; name one that does not exist")
    for ending in ("-wal", "-shm", "-journal"):
        left = target.with_name(f"{target.name}{ending}")
        if os.path.lexists(left):  # SQLite would use it for the copy, and the copy would show another store
            raise ConfigurationError(
                f"{left}: this was left by another database and would be taken for the copy's; "
                "move it to where that database is, or name another target"
            )


def _copy(source: apsw.Connection, part: Path, progress: Callable[[float], None] | None) -> None:
    copy = apsw.Connection(str(part))
    try:
        # The file is not read before it is complete, and then it is synced as a whole.
        copy.pragma("journal_mode", "off")
        copy.pragma("synchronous", "off")
        with copy.backup("main", source, "main") as copying:
            while not copying.done:
                copying.step(_PAGES_PER_STEP)
                if progress is not None and copying.page_count:
                    progress(1 - copying.remaining / copying.page_count)
    finally:
        copy.close()


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


COPY_SQL = load_statements("copy")
IDS_PER_PAGE = 1000


def copy_jobs(transaction: SqliteTransaction, after: int, limit: int) -> list[JobCopy]:
    """Returns up to `limit` jobs with their attempts, log lines and checkpoints, oldest first (U5). Only jobs
    whose sequence number (`Job.seq`) is above `after` are returned."""
    return [
        JobCopy(
            job=job,
            attempts=tuple(reader.attempts(transaction, job.id)),
            logs=tuple(reader.logs(transaction, job.id)),
            checkpoints=tuple(checkpoints.list_checkpoints(transaction, job.id)),
        )
        for job in transaction.jobs(COPY_SQL.jobs, (after, limit))
    ]


def copy_ids(transaction: SqliteTransaction, cursor: str) -> IdPage:
    """Returns one page of remembered ids: ids of enqueue requests whose job was deleted or never created
    (U6). `cursor`: the last id of the previous page; empty for the first page."""
    rows = transaction.execute(
        COPY_SQL.ids, (cursor, transaction.now, transaction.boot, IDS_PER_PAGE)
    ).fetchall()
    found = tuple(
        IdCopy(request=request, verdict=InsertVerdict(verdict), job=job, fence=fence, claim=claim)
        for request, verdict, job, fence, claim in rows
    )
    return IdPage(found, found[-1].request if len(found) == IDS_PER_PAGE else None)


def copy_in(transaction: SqliteTransaction, copies: StoreCopy) -> None:
    """Inserts the rows that were read from another store (U7)."""
    check_copies(copies)
    for name, pool in copies.pools.items():
        _copy_in_pool(transaction, name, pool)
    for name, queue in copies.queues.items():
        _copy_in_queue(transaction, name, queue)
    _copy_in_ids(transaction, copies)
    for document in copies.documents:
        _copy_in_document(transaction, document)
    known = transaction.by_id([copy.job.id for copy in copies.jobs])
    for copy in copies.jobs:
        if copy.job.id not in known:
            _copy_in_job(transaction, copy)
    for arrival in copies.arrivals:
        _copy_in_arrival(transaction, arrival)
    transaction.execute(COPY_SQL.fence, (copies.fence,))


def _copy_in_ids(transaction: SqliteTransaction, copies: StoreCopy) -> None:
    requests = [known.request for known in copies.ids]
    existing = transaction.by_id(requests)
    for known in copies.ids:
        if known.request not in existing and transaction.find_known_id(known.request) is None:
            transaction.remember_id(known.request, known.verdict, known.job, known.fence, known.claim)


def _copy_in_document(transaction: SqliteTransaction, document: Document) -> None:
    if documents.get_documents(transaction, document.kind, [document.id]) == [None]:
        transaction.execute(documents.SQL.save, documents.document_row(document))
        if document.kind in ADVANCED_KINDS:
            transaction.mark_document(document.kind, document.id)


def _copy_in_job(transaction: SqliteTransaction, copy: JobCopy) -> None:
    seq = transaction.next_seq()
    add_queue(transaction, copy.job.queue)
    transaction.add(_readable(copy.job))
    for number, attempt in enumerate(copy.attempts, 1):
        error = None if attempt.error is None else text_of(attempt.error)
        ran = (attempt.generation, attempt.attempt, attempt.started, attempt.ended)
        transaction.execute(COPY_SQL.attempt, (seq, number, *ran, attempt.worker, attempt.outcome, error))
    for line in copy.logs:
        of = (seq, line.generation, line.attempt)
        transaction.execute(HEARTBEAT_SQL.log, (*of, *of, line.at, line.line))
    for checkpoint in copy.checkpoints:
        checkpoints.save_checkpoint(transaction, seq, checkpoint)


def _readable(job: Job) -> Job:
    """Returns a copy of the job in which invalid UTF-8 bytes of payload and result are replaced. SQLite's
    text columns accept only valid UTF-8."""
    result = None if job.result is None else job.result.decode(errors="replace").encode()
    return replace(job, payload=job.payload.decode(errors="replace").encode(), result=result)


def _copy_in_queue(transaction: SqliteTransaction, name: str, copy: QueueCopy) -> None:
    override = None if copy.override is None else text_of(copy.override)
    pause = None if copy.pause is None else text_of(copy.pause)
    transaction.execute(COPY_SQL.queue, (name, text_of(copy.declared), override, pause))
    transaction.queue_changed(name)
    for minute in copy.history:
        _, *counters = astuple(minute)
        transaction.execute(TRANSACTION.count_minute, (name, int(minute.at // 60), *counters))


def _copy_in_pool(transaction: SqliteTransaction, name: str, copy: PoolCopy) -> None:
    override = None if copy.override is None else text_of(copy.override)
    transaction.execute(COPY_SQL.pool, (name, text_of(copy.declared), override))
    transaction.ledger.pool_changed(name)
    for key, account in copy.accounts.items():
        row = (name, key or "", transaction.now, text_of(mark_other_boot(account)))
        transaction.execute(ACCOUNTS.save, row)
    for minute in copy.history:
        entry = PoolHistoryEntry(calls=minute.calls, units=minute.units, refusals=minute.refusals)
        before = transaction.execute(POOLS.minute, (name, int(minute.at // 60))).fetchone()
        total = entry if before is None else pool_minute_of(*before).plus(entry)
        texts = (text_of(total.units), text_of(total.refusals))
        transaction.execute(POOLS.save_minute, (name, int(minute.at // 60), total.calls, *texts))


def _copy_in_arrival(transaction: SqliteTransaction, arrival: Arrival) -> None:
    texts = (arrival.payload.decode(errors="replace"), arrival.options.decode(errors="replace"))
    transaction.execute(COPY_SQL.arrival, (arrival.id, arrival.task, *texts, arrival.arrived))
