"""amend: an operator's change to the jobs a filter means."""

from __future__ import annotations

from itertools import islice

from tidemill.contract.wakeups import worker_topic
from tidemill.core.changes import Amended, Change, RetryNow, applies_to, changed
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.states import FINAL, State
from tidemill.stores.sqlite import booking, checkpoints
from tidemill.stores.sqlite.find import oldest_first
from tidemill.stores.sqlite.transaction import Transaction


def amend(transaction: Transaction, wanted: Filter, change: Change, limit: int) -> Amended:
    done: list[str] = []
    left: list[str] = []
    meant = [job.id for job in islice(oldest_first(transaction, wanted), limit)]
    for name in meant:
        # An earlier change of this call may have released or ended it: look at it as it is now.
        job = transaction.by_id([name])[name]
        if applies_to(change, job):
            _change(transaction, job, change)
            done.append(job.id)
        else:
            left.append(job.id)
    return Amended(tuple(done), tuple(left))


def _change(transaction: Transaction, before: Job, change: Change) -> None:
    after = changed(change, before, transaction.now)
    if after is None:
        transaction.drop(before)
    else:
        transaction.save(before, after)
    if isinstance(change, RetryNow):
        checkpoints.forget_begun(transaction, before.seq)
    if before.state is State.RUNNING and before.worker is not None:
        transaction.topics.add(worker_topic(before.worker))
        booking.leave(transaction, before)
    if after is None or after.state in FINAL:
        transaction.release_successors([before.id])
