"""prune: ended jobs leave by their queue's retention or with their flow, expired ones end, old ids are
forgotten."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

import apsw

from tidemill.contract import jobs
from tidemill.contract.jobs import Pruned
from tidemill.contract.reader import HISTORY_KEPT
from tidemill.core.courses import Kind
from tidemill.core.queues import HOUR
from tidemill.core.states import FINAL, State
from tidemill.stores.sqlite import pool_views, queues
from tidemill.stores.sqlite.advance import forget
from tidemill.stores.sqlite.expire import expire
from tidemill.stores.sqlite.ledger import POOLS, RESERVATIONS
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("prune")
_PAGE = 100


def prune(transaction: Transaction, limit: int) -> Pruned:
    expired = [name for (name,) in transaction.execute(SQL.expired, (transaction.now, limit))]
    expire(transaction, expired)
    pruned, early = 0, Counter[str]()
    for queue in queues.every(transaction):
        transaction.execute(SQL.forget_history, (queue.name, int((transaction.now - HISTORY_KEPT) // 60)))
        for state in sorted(FINAL):
            dropped, of_them_early = _prune_state(transaction, queue.name, state, limit - pruned)
            pruned += dropped
            early[queue.name] += of_them_early
    for name, many in (+early).items():
        transaction.remark(name, "dropped_early", many)
    pruned += _prune_courses(transaction, limit - pruned)
    transaction.execute(SQL.forget_ids, (transaction.now, transaction.boot, limit))
    forgotten = transaction.connection.changes()
    transaction.execute(SQL.forget_workers, (transaction.boot - HOUR,))
    transaction.execute(POOLS.forget_minutes, (int((transaction.now - HISTORY_KEPT) // 60),))
    transaction.execute(RESERVATIONS.forget_unheard, (transaction.now - HOUR,))
    pool_views.forget_unused(transaction, limit)
    more = limit in (pruned, len(expired), forgotten)
    return Pruned(pruned, len(expired), more=more, early=dict(+early))


def _prune_state(transaction: Transaction, queue: str, state: State, limit: int) -> tuple[int, int]:
    """How many were dropped, and how many of them by count before their age was over."""
    keep = transaction.settings(queue).retention(state)
    doomed: dict[int, None] = {}
    if keep.age is not None and limit > 0:
        old = (queue, state.value, transaction.now - keep.age, transaction.now, limit)
        doomed |= {row[0]: None for row in transaction.execute(SQL.too_old, old)}
    too_old = len(doomed)
    excess = 0 if keep.count is None else transaction.droppable(queue, state) - keep.count
    if excess > len(doomed) and limit > len(doomed):
        surplus = (queue, state.value, transaction.now, min(excess, limit))
        doomed |= {row[0]: None for row in transaction.execute(SQL.oldest, surplus)}
    if doomed:
        _drop(transaction, queue, state, array("q", doomed))
    return len(doomed), 0 if keep.age is None else len(doomed) - too_old


def _prune_courses(transaction: Transaction, limit: int) -> int:
    """J83, F4. Jobs of a flow go before it, and one that is live holds it."""
    dropped = 0
    for kind, course in _outlived(transaction):
        if dropped >= limit:
            break
        ended: list[tuple[int, str, str, str]] = []
        if kind is Kind.FLOW:
            ended = transaction.execute(SQL.ended_parts, (course, limit - dropped)).fetchall()
            _drop_parts(transaction, ended)
        dropped += len(ended)
        if dropped < limit and not (kind is Kind.FLOW and transaction.execute(SQL.live_part, (course,)).get):
            forget(transaction, kind, course)
            dropped += 1
        else:
            for _, job, _, _ in ended:
                transaction.stir(kind, course, job)
    return dropped


def _outlived(transaction: Transaction) -> Iterator[tuple[Kind, str]]:
    """In pages: those that a live job holds are passed, the others go, however many there are."""
    last: tuple[float, str, str] | None = (-math.inf, "", "")
    while last is not None:
        rows = transaction.execute(SQL.outlived, (transaction.now, *last, _PAGE)).fetchall()
        yield from ((Kind(kind), course) for _, kind, course in rows)
        last = rows[-1] if rows else None


def _drop_parts(transaction: Transaction, ended: Sequence[tuple[int, str, str, str]]) -> None:
    by_shelf: dict[tuple[str, str], array[int]] = {}
    for seq, _, queue, state in ended:
        by_shelf.setdefault((queue, state), array("q")).append(seq)
    for (queue, state), seqs in by_shelf.items():
        _drop(transaction, queue, State(state), seqs)
        transaction.counted_parts(queue, State(state), -len(seqs))


def _drop(transaction: Transaction, queue: str, state: State, seqs: array[int]) -> None:
    until = (transaction.now + jobs.MEMORY_OF_IDS, transaction.boot + jobs.MEMORY_OF_IDS)
    transaction.execute(SQL.remember, (*until, apsw.carray(seqs)))
    transaction.keep_place(max(seqs))
    for sql in (SQL.drop, SQL.drop_logs, SQL.drop_attempts, SQL.drop_checkpoints):
        transaction.execute(sql, (apsw.carray(seqs),))
    transaction.counted(queue, state, None, len(seqs))
