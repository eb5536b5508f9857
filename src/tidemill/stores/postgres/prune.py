"""Implements `prune`: deletes ended jobs and documents by their retention, and cancels expired jobs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from asyncpg import Record

from tidemill.contract import jobs
from tidemill.contract.coordination import document_topic, worklist_topic
from tidemill.contract.jobs import PruneResult
from tidemill.contract.reader import HISTORY_SECONDS
from tidemill.core import accounts, key_overrides, pool_statistics, transitions
from tidemill.core.documents import REMEMBERED_KINDS, DocumentKind, remembered_id
from tidemill.core.overrides import apply_override
from tidemill.core.queues import HOUR_SECONDS, Retention
from tidemill.core.states import FINAL, State
from tidemill.core.windows import Instant
from tidemill.engine import read_sets
from tidemill.engine.records import Records, move_job
from tidemill.stores.postgres.engine_runner import SQL as LOAD_SQL
from tidemill.stores.postgres.engine_runner import PostgresEngineRunner
from tidemill.stores.postgres.load_lanes import queue_settings_of
from tidemill.stores.postgres.pools import account_of, pool_of
from tidemill.stores.postgres.rows import text_array
from tidemill.stores.postgres.statements import load_statements
from tidemill.stores.postgres.transaction import PostgresTransaction

SQL = load_statements("prune")
_DOCUMENTS_PER_PAGE = 25

DeleteJobs = Callable[[PostgresTransaction, list[str]], Awaitable[None]]


async def prune_documents(transaction: PostgresTransaction, limit: int, drop: DeleteJobs) -> int:
    """Deletes expired documents, and the ended jobs of expired flows (F4). A flow with a live job stays
    (J83). Returns the number of deleted jobs and documents, at most `limit`. `drop`: the function that
    deletes jobs."""
    now = (await transaction.time()).wall
    dropped, last = 0, (-math.inf, "", "")
    while dropped < limit:
        page = await transaction.fetch(
            SQL.expired_documents, now, *last, _DOCUMENTS_PER_PAGE, limit - dropped
        )
        dropped += await _prune_page(transaction, page, limit - dropped, drop)
        if len(page) < _DOCUMENTS_PER_PAGE:
            break
        last = (page[-1]["until"], page[-1]["kind"], page[-1]["id"])
    return dropped


async def _prune_page(
    transaction: PostgresTransaction, page: Sequence[Record], limit: int, drop: DeleteJobs
) -> int:
    deleted: list[str] = []
    deleted_documents: list[tuple[DocumentKind, str]] = []
    left: list[tuple[str, str]] = []
    for _, kind, id_, all_ended, held in page:
        ended = all_ended[: limit - len(deleted) - len(deleted_documents)]
        deleted += ended
        if not held and len(ended) == len(all_ended) and len(deleted) + len(deleted_documents) < limit:
            deleted_documents.append((DocumentKind(kind), id_))
        else:
            left += [(id_, job) for job in ended]
    await drop(transaction, deleted)
    await _delete_documents(transaction, deleted_documents)
    if left:
        await transaction.fetch(SQL.mark_document, *map(list, zip(*left, strict=True)))
        transaction.topics.add(worklist_topic(DocumentKind.FLOW))
    return len(deleted) + len(deleted_documents)


async def _delete_documents(
    transaction: PostgresTransaction, documents: Sequence[tuple[DocumentKind, str]]
) -> None:
    """Deletes documents and their entries in the worklist. The caller must delete the jobs of these documents
    first, so that no job can end and add a new entry."""
    if not documents:
        return
    await transaction.fetch(SQL.delete_documents, *map(list, zip(*documents, strict=True)))
    transaction.topics.update(document_topic(*document) for document in documents)
    if remembered := [(remembered_id(kind, id_), id_) for kind, id_ in documents if kind in REMEMBERED_KINDS]:
        time = await transaction.time()
        until = time.wall + jobs.KNOWN_ID_SECONDS, time.boot + jobs.KNOWN_ID_SECONDS
        columns = map(list, zip(*remembered, strict=True))
        await transaction.fetch(SQL.remember_documents, *columns, *until, transaction.clock.boot_id)


SQL = load_statements("prune")
QUEUES = load_statements("reader").queues
COMPACTED_AFTER_SECONDS = 2 * HOUR_SECONDS
"""Only minutes younger than this are still compacted."""

RetentionScope = tuple[str, State, Retention]
"""The ended jobs of a queue in one state, and how long they are kept."""


async def prune(runner: PostgresEngineRunner, limit: int) -> PruneResult:
    async def work(transaction: PostgresTransaction) -> PruneResult:
        await transaction.fetch(LOAD_SQL.begin, *transaction.clock.arguments())
        expired = await _cancel_expired(runner, transaction, limit)
        pruned, early = await _delete_ended_jobs(transaction, limit)
        pruned += await prune_documents(transaction, limit - pruned, _delete_jobs)
        forgotten_ids = await _delete_old_rows(transaction, limit)
        return PruneResult(pruned, expired, more=limit in (pruned, expired, forgotten_ids), early=early)

    return await runner.connection.run(work)


async def _cancel_expired(runner: PostgresEngineRunner, transaction: PostgresTransaction, limit: int) -> int:
    now = (await transaction.time()).wall
    ids = [row["id"] for row in await transaction.fetch(SQL.expired, now, limit)]

    def expire(records: Records) -> int:
        over = [job for id_ in ids if (job := records.jobs.get(id_)) and transitions.is_expired(job, now)]
        pending = [job for job in over if job.state is not State.RUNNING and job.finished is None]
        for job in pending:
            move_job(records, transitions.expire_job(job, now), now)
        return len(pending)

    return await runner.run_in(transaction, read_sets.change_jobs(ids), expire) if ids else 0


async def _delete_ended_jobs(transaction: PostgresTransaction, limit: int) -> tuple[int, dict[str, int]]:
    """Deletes up to `limit` ended jobs by retention. Returns the number of deleted jobs, and per queue how
    many of them were deleted before the retention age because of the count limit (J84)."""
    now = (await transaction.time()).wall
    scopes: list[RetentionScope] = []
    for name, *texts in await transaction.fetch(QUEUES):
        row = queue_settings_of(*texts)
        settings = apply_override(row.declared, row.override, now)
        scopes += [(name, state, settings.retention(state)) for state in sorted(FINAL)]
    deleted: list[str] = []
    early: Counter[str] = Counter()
    counted = {(row["queue"], row["state"]): row["jobs"] for row in await transaction.fetch(SQL.droppable)}
    for queue, state, retention in scopes:
        count = counted.get((queue, state.value), 0)
        if not count:
            continue
        surplus = 0 if retention.count is None else count - retention.count
        rows = await transaction.fetch(SQL.oldest, queue, state.value, now, limit - len(deleted))
        leaving = [row for at, row in enumerate(rows) if row[1] <= retention.oldest_kept(now) or at < surplus]
        deleted += [id_ for id_, _ in leaving]
        early[queue] += sum(retention.drops_early(finished, now) for _, finished in leaving)
    await _delete_jobs(transaction, deleted)
    if early := +early:
        await transaction.fetch(
            SQL.count_dropped_early, now // 60 * 60, list(early), text_array(early.values())
        )
    return len(deleted), dict(early)


async def _delete_jobs(transaction: PostgresTransaction, ids: list[str]) -> None:
    if ids:
        time = await transaction.time()
        until = time.wall + jobs.KNOWN_ID_SECONDS, time.boot + jobs.KNOWN_ID_SECONDS
        await transaction.fetch(SQL.delete_jobs, ids, *until, transaction.clock.boot_id)


async def _delete_old_rows(transaction: PostgresTransaction, limit: int) -> int:
    """Deletes remembered job ids, history, workers and accounts that are too old. Returns the number of
    deleted ids, at most `limit`."""
    time = await transaction.time()
    minute = time.wall // 60 * 60
    forgotten_ids = await transaction.fetch(
        SQL.delete_known_ids, time.wall, time.boot, transaction.clock.boot_id, limit
    )
    await transaction.fetch(SQL.delete_minutes, (time.wall - HISTORY_SECONDS) // 60 * 60)
    await transaction.fetch(SQL.compact_minutes, minute - COMPACTED_AFTER_SECONDS, minute)
    await transaction.fetch(SQL.compact_counts)
    await transaction.fetch(SQL.delete_unconfirmed_units, time.wall - HOUR_SECONDS)
    await transaction.fetch(SQL.delete_workers, time.boot - HOUR_SECONDS)
    await _delete_unused_accounts(transaction, limit)
    return len(forgotten_ids)


async def _delete_unused_accounts(transaction: PostgresTransaction, limit: int) -> None:
    """Deletes the accounts of pool keys that were unused for 60 s, if nothing is reserved, used or closed in
    them. Examines at most `limit` accounts."""
    time = await transaction.time()
    now = Instant(time.wall, time.boot)
    resting: list[tuple[str, str]] = []
    in_use: list[tuple[str, str]] = []
    for row in await transaction.fetch(
        SQL.unused_accounts, time.wall - pool_statistics.UNUSED_KEY_SECONDS, limit
    ):
        pool = pool_of(row["declared"], row["override"])
        stored = account_of(row["account"])
        settings = apply_override(pool.declared, pool.override, time.wall)
        settings = key_overrides.apply_key_override(settings, stored, time.wall)
        account = accounts.refresh_account(settings, stored, transaction.clock.boot_id, now)
        is_resting = not row["is_held"] and pool_statistics.is_at_rest(settings, account, now)
        (resting if is_resting else in_use).append((row["pool"], row["key"]))
    if resting:
        await transaction.fetch(SQL.delete_accounts, *map(list, zip(*resting, strict=True)))
    if in_use:
        await transaction.fetch(SQL.touch_accounts, *map(list, zip(*in_use, strict=True)), time.wall)
