"""amend: what a person does to jobs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tidemill.contract.wakeups import worker_topic
from tidemill.core.changes import Amended, Change, RetryNow, applies_to, changed
from tidemill.core.filters import Filter, checked
from tidemill.core.job import Job
from tidemill.core.matching import matches
from tidemill.core.states import LIVE, State
from tidemill.engine.checkpoints import forget_begun
from tidemill.engine.moves import gone, move, withdraw
from tidemill.engine.records import Records


def amend(records: Records, wanted: Filter, change: Change, limit: int) -> Amended:
    """J70 to J73. Who is meant is decided first: the oldest `limit` jobs the filter matches,
    whether or not the change applies. Then each is changed as it stands when its turn comes."""
    checked(wanted)
    meant = [job.id for job in islice(oldest_first(records, wanted), limit)]
    done: list[str] = []
    left: list[str] = []
    for id_ in meant:
        job = records.jobs[id_]
        if applies_to(change, job):
            _apply(records, change, job)
            done.append(id_)
        else:
            left.append(id_)
    return Amended(tuple(done), tuple(left))


def oldest_first(records: Records, wanted: Filter) -> Iterator[Job]:
    """By ids first, where there are any: only those jobs are looked at."""
    if wanted.ids is None:
        return (job for job in records.jobs.values() if matches(wanted, job))
    named = (records.jobs[id_] for id_ in set(wanted.ids) if id_ in records.jobs)
    return iter(sorted((job for job in named if matches(wanted, job)), key=lambda job: job.seq))


def _apply(records: Records, change: Change, job: Job) -> None:
    now = records.clock.wall()
    after = changed(change, job, now)
    if after is not None:
        move(records, after, now)
    else:
        records.drop(job)
        if job.state in LIVE:
            withdraw(records, job)
            gone(records, job, now)
    if isinstance(change, RetryNow):
        forget_begun(records, job.id)
    if job.state is State.RUNNING:
        records.books.leave((job.id, job.fence, job.claim), job.worker or "", job.lease)
        records.topics[worker_topic(job.worker or "")] = None
