"""amend: an operator's change to the jobs a filter means."""

from __future__ import annotations

from tidemill.contract.wakeups import worker_topic
from tidemill.core.changes import Amended, Change, applies_to, changed
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.states import FINAL, State
from tidemill.stores.sqlite import find
from tidemill.stores.sqlite.transaction import Transaction


def amend(transaction: Transaction, wanted: Filter, change: Change, limit: int) -> Amended:
    done: list[str] = []
    left: list[str] = []
    for meant in _meant(transaction, wanted, limit):
        # An earlier change of this call may have released or ended it: look at it as it is now.
        job = transaction.by_id([meant.id])[meant.id]
        if applies_to(change, job):
            _change(transaction, job, change)
            done.append(job.id)
        else:
            left.append(job.id)
    return Amended(tuple(done), tuple(left))


def _meant(transaction: Transaction, wanted: Filter, limit: int) -> list[Job]:
    if wanted.ids is not None and wanted == Filter(ids=wanted.ids):
        jobs = transaction.by_id(wanted.ids)
    else:
        jobs = transaction.by_id(
            name for (name,) in transaction.execute(find.SQL.oldest, find.values(wanted, limit))
        )
    return sorted(jobs.values(), key=lambda job: job.seq)[:limit]


def _change(transaction: Transaction, before: Job, change: Change) -> None:
    after = changed(change, before, transaction.now)
    if after is None:
        transaction.drop(before)
    else:
        transaction.save(before, after)
    if before.state is State.RUNNING and before.worker is not None:
        transaction.topics.add(worker_topic(before.worker))
    if after is None or after.state in FINAL:
        transaction.release_successors([before.id])
