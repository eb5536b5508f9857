"""Implements `prune`: deletes ended jobs and documents by their retention, cancels expired jobs, and forgets
the ids of jobs that were deleted long ago."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

import apsw

from tidemill.contract import jobs
from tidemill.contract.jobs import PruneResult
from tidemill.contract.reader import HISTORY_SECONDS
from tidemill.core.documents import DocumentKind
from tidemill.core.queues import HOUR_SECONDS
from tidemill.core.states import FINAL, State
from tidemill.stores.sqlite import pools, queues
from tidemill.stores.sqlite.documents import delete_document
from tidemill.stores.sqlite.ledger import RESERVATIONS
from tidemill.stores.sqlite.settings_cache import POOLS
from tidemill.stores.sqlite.statements import load_statements
from tidemill.stores.sqlite.transaction import SqliteTransaction, expire_jobs

SQL = load_statements("prune")
_DOCUMENTS_PER_PAGE = 100


def prune(transaction: SqliteTransaction, limit: int) -> PruneResult:
    expired = [name for (name,) in transaction.execute(SQL.expired, (transaction.now, limit))]
    expire_jobs(transaction, expired)
    pruned, early = 0, Counter[str]()
    for queue in queues.list_queues(transaction):
        transaction.execute(SQL.delete_minutes, (queue.name, int((transaction.now - HISTORY_SECONDS) // 60)))
        for state in sorted(FINAL):
            dropped, dropped_early = _prune_state(transaction, queue.name, state, limit - pruned)
            pruned += dropped
            early[queue.name] += dropped_early
    for name, count in (+early).items():
        transaction.count_minute(name, "dropped_early", count)
    pruned += _prune_documents(transaction, limit - pruned)
    transaction.execute(SQL.delete_known_ids, (transaction.now, limit, transaction.boot))
    forgotten_ids = transaction.connection.changes()
    transaction.execute(SQL.delete_workers, (transaction.boot - HOUR_SECONDS,))
    transaction.execute(POOLS.delete_minutes, (int((transaction.now - HISTORY_SECONDS) // 60),))
    transaction.execute(RESERVATIONS.delete_unconfirmed, (transaction.now - HOUR_SECONDS,))
    pools.delete_unused_accounts(transaction, limit)
    more = limit in (pruned, len(expired), forgotten_ids)
    return PruneResult(pruned, len(expired), more=more, early=dict(+early))


def _prune_state(transaction: SqliteTransaction, queue: str, state: State, limit: int) -> tuple[int, int]:
    """Deletes up to `limit` ended jobs. Returns the number of deleted jobs, and how many of them were deleted
    before the retention age because of the count limit (J84)."""
    keep = transaction.settings(queue).retention(state)
    selected: dict[int, None] = {}
    if keep.age is not None and limit > 0:
        old = (queue, state.value, transaction.now - keep.age, transaction.now, limit)
        selected |= {row[0]: None for row in transaction.execute(SQL.too_old, old)}
    too_old = len(selected)
    excess = 0 if keep.count is None else transaction.droppable(queue, state) - keep.count
    if excess > len(selected) and limit > len(selected):
        surplus = (queue, state.value, transaction.now, min(excess, limit))
        selected |= {row[0]: None for row in transaction.execute(SQL.oldest, surplus)}
    if selected:
        _delete_jobs(transaction, queue, state, array("q", selected))
    return len(selected), 0 if keep.age is None else len(selected) - too_old


def _prune_documents(transaction: SqliteTransaction, limit: int) -> int:
    """Deletes expired documents, and the ended jobs of expired flows (F4). A flow with a live job stays
    (J83). Returns the number of deleted jobs and documents, at most `limit`."""
    dropped = 0
    for kind, document in _expired_documents(transaction):
        if dropped >= limit:
            break
        ended: list[tuple[int, str, str, str]] = []
        if kind is DocumentKind.FLOW:
            ended = transaction.execute(SQL.ended_flow_jobs, (document, limit - dropped)).fetchall()
            _delete_flow_jobs(transaction, ended)
        dropped += len(ended)
        if dropped < limit and not (
            kind is DocumentKind.FLOW and transaction.execute(SQL.has_live_flow_job, (document,)).get
        ):
            delete_document(transaction, kind, document)
            dropped += 1
        else:
            for _, job, _, _ in ended:
                transaction.mark_document(kind, document, job)
    return dropped


def _expired_documents(transaction: SqliteTransaction) -> Iterator[tuple[DocumentKind, str]]:
    """Yields (kind, id) of all expired documents. Reads all pages, because flows that must stay could fill
    the first page."""
    last: tuple[float, str, str] | None = (-math.inf, "", "")
    while last is not None:
        rows = transaction.execute(
            SQL.expired_documents, (transaction.now, *last, _DOCUMENTS_PER_PAGE)
        ).fetchall()
        yield from ((DocumentKind(kind), document) for _, kind, document in rows)
        last = rows[-1] if rows else None


def _delete_flow_jobs(transaction: SqliteTransaction, ended: Sequence[tuple[int, str, str, str]]) -> None:
    by_queue_and_state: dict[tuple[str, str], array[int]] = {}
    for seq, _, queue, state in ended:
        by_queue_and_state.setdefault((queue, state), array("q")).append(seq)
    for (queue, state), seqs in by_queue_and_state.items():
        _delete_jobs(transaction, queue, State(state), seqs)
        transaction.count_flow_jobs(queue, State(state), -len(seqs))


def _delete_jobs(transaction: SqliteTransaction, queue: str, state: State, seqs: array[int]) -> None:
    until = (transaction.now + jobs.KNOWN_ID_SECONDS, transaction.boot + jobs.KNOWN_ID_SECONDS)
    transaction.execute(SQL.remember_ids, (*until, apsw.carray(seqs)))
    transaction.keep_seq(max(seqs))
    for sql in (SQL.delete, SQL.delete_logs, SQL.delete_attempts, SQL.delete_checkpoints):
        transaction.execute(sql, (apsw.carray(seqs),))
    transaction.count_change(queue, state, None, len(seqs))
