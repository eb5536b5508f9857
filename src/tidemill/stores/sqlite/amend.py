"""amend: an operator's change to the jobs a filter means."""

from __future__ import annotations

from tidemill.contract.wakeups import worker_topic
from tidemill.core.changes import Amended, Change, applies_to, changed
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.states import FINAL, State
from tidemill.stores.sqlite import find
from tidemill.stores.sqlite.transaction import Transaction


def amend(step: Transaction, wanted: Filter, change: Change, limit: int) -> Amended:
    done: list[str] = []
    left: list[str] = []
    for meant in _meant(step, wanted, limit):
        # An earlier change of this call may have released or ended it: look at it as it is now.
        job = step.by_id([meant.id])[meant.id]
        if applies_to(change, job):
            _change(step, job, change)
            done.append(job.id)
        else:
            left.append(job.id)
    return Amended(tuple(done), tuple(left))


def _meant(step: Transaction, wanted: Filter, limit: int) -> list[Job]:
    if wanted.ids is not None and wanted == Filter(ids=wanted.ids):
        jobs = step.by_id(wanted.ids)
    else:
        jobs = step.by_id(name for (name,) in step.execute(find.SQL.oldest, find.values(wanted, limit)))
    return sorted(jobs.values(), key=lambda job: job.seq)[:limit]


def _change(step: Transaction, before: Job, change: Change) -> None:
    after = changed(change, before, step.now)
    if after is None:
        step.drop(before)
    else:
        step.save(before, after)
    if before.state is State.RUNNING and before.worker is not None:
        step.topics.add(worker_topic(before.worker))
    if after is None or after.state in FINAL:
        step.release_successors([before.id])
