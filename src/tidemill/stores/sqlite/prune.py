"""prune: ended jobs leave by their queue's retention, expired ones end, old ids are forgotten."""

from __future__ import annotations

from array import array

import apsw

from tidemill.contract.jobs import MEMORY_OF_IDS, Pruned
from tidemill.contract.reader import HISTORY_KEPT
from tidemill.core.queues import HOUR
from tidemill.core.states import FINAL, State
from tidemill.stores.sqlite import queues, transaction
from tidemill.stores.sqlite.expire import expire
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("prune")


def prune(step: Transaction, limit: int) -> Pruned:
    expired = [name for (name,) in step.execute(SQL.expired, (step.now, limit))]
    expire(step, expired)
    pruned = 0
    for queue in queues.every(step):
        step.execute(SQL.forget_history, (queue.name, int((step.now - HISTORY_KEPT) // 60)))
        for state in sorted(FINAL):
            pruned += _prune_state(step, queue.name, state, limit - pruned)
    step.execute(SQL.forget_ids, (step.now, step.boot, limit))
    forgotten = step.connection.changes()
    step.execute(SQL.forget_workers, (step.boot - HOUR,))
    return Pruned(pruned, len(expired), more=limit in (pruned, len(expired), forgotten))


def _prune_state(step: Transaction, queue: str, state: State, limit: int) -> int:
    keep = step.settings(queue).retention(state)
    doomed: dict[int, None] = {}
    if keep.age is not None and limit > 0:
        old = (queue, state.value, step.now - keep.age, step.now, limit)
        doomed |= {row[0]: None for row in step.execute(SQL.too_old, old)}
    excess = 0 if keep.count is None else step.count(queue, state) - keep.count
    if excess > len(doomed) and limit > len(doomed):
        surplus = (queue, state.value, step.now, min(excess, limit))
        doomed |= {row[0]: None for row in step.execute(SQL.oldest, surplus)}
    if doomed:
        _drop(step, queue, state, array("q", doomed))
    return len(doomed)


def _drop(step: Transaction, queue: str, state: State, seqs: array[int]) -> None:
    until = (step.now + MEMORY_OF_IDS, step.boot + MEMORY_OF_IDS)
    step.execute(SQL.remember, (*until, apsw.carray(seqs)))
    step.execute(transaction.SQL.gave_seq, (max(seqs),))
    for sql in (SQL.drop, SQL.drop_logs, SQL.drop_attempts):
        step.execute(sql, (apsw.carray(seqs),))
    step.counted(queue, state, None, len(seqs))
