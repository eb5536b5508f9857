"""prune: ended jobs leave by their queue's retention, expired ones end, old ids are forgotten."""

from __future__ import annotations

from array import array

import apsw

from tidemill.contract.jobs import MEMORY_OF_IDS, Pruned
from tidemill.contract.reader import HISTORY_KEPT
from tidemill.core.queues import HOUR
from tidemill.core.states import FINAL, State
from tidemill.stores.sqlite import pool_views, queues
from tidemill.stores.sqlite.expire import expire
from tidemill.stores.sqlite.ledger import POOLS, RESERVATIONS
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("prune")


def prune(transaction: Transaction, limit: int) -> Pruned:
    expired = [name for (name,) in transaction.execute(SQL.expired, (transaction.now, limit))]
    expire(transaction, expired)
    pruned = 0
    for queue in queues.every(transaction):
        transaction.execute(SQL.forget_history, (queue.name, int((transaction.now - HISTORY_KEPT) // 60)))
        for state in sorted(FINAL):
            pruned += _prune_state(transaction, queue.name, state, limit - pruned)
    transaction.execute(SQL.forget_ids, (transaction.now, transaction.boot, limit))
    forgotten = transaction.connection.changes()
    transaction.execute(SQL.forget_workers, (transaction.boot - HOUR,))
    transaction.execute(POOLS.forget_minutes, (int((transaction.now - HISTORY_KEPT) // 60),))
    transaction.execute(RESERVATIONS.forget_unheard, (transaction.now - HOUR,))
    pool_views.forget_unused(transaction, limit)
    return Pruned(pruned, len(expired), more=limit in (pruned, len(expired), forgotten))


def _prune_state(transaction: Transaction, queue: str, state: State, limit: int) -> int:
    keep = transaction.settings(queue).retention(state)
    doomed: dict[int, None] = {}
    if keep.age is not None and limit > 0:
        old = (queue, state.value, transaction.now - keep.age, transaction.now, limit)
        doomed |= {row[0]: None for row in transaction.execute(SQL.too_old, old)}
    excess = 0 if keep.count is None else transaction.count(queue, state) - keep.count
    if excess > len(doomed) and limit > len(doomed):
        surplus = (queue, state.value, transaction.now, min(excess, limit))
        doomed |= {row[0]: None for row in transaction.execute(SQL.oldest, surplus)}
    if doomed:
        _drop(transaction, queue, state, array("q", doomed))
    return len(doomed)


def _drop(transaction: Transaction, queue: str, state: State, seqs: array[int]) -> None:
    until = (transaction.now + MEMORY_OF_IDS, transaction.boot + MEMORY_OF_IDS)
    transaction.execute(SQL.remember, (*until, apsw.carray(seqs)))
    transaction.keep_place(max(seqs))
    for sql in (SQL.drop, SQL.drop_logs, SQL.drop_attempts, SQL.drop_checkpoints):
        transaction.execute(sql, (apsw.carray(seqs),))
    transaction.counted(queue, state, None, len(seqs))
