"""reclaim: jobs whose holder fell silent, and the leases of another boot."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tidemill.contract.jobs import Reclaimed
from tidemill.core import transitions
from tidemill.core.job import Job
from tidemill.core.states import State
from tidemill.engine.moves import move, record_attempt
from tidemill.engine.records import Records


def reclaim(records: Records, dead: Sequence[str]) -> Reclaimed:
    """J60 to J63. A lease is over when the boot clock has reached it. Answers are by seq.
    The lease of a worker known to be dead is over too."""
    boot, workers = records.clock.boot(), frozenset(dead)
    over = records.overdue(boot, workers)
    ready: list[str] = []
    poison: list[str] = []
    for job in sorted(over, key=lambda job: job.seq):
        after = _take_back(records, job, died=job.worker in workers)
        (ready if after.state is State.READY else poison).append(job.id)
    for claim in records.books.left_over(boot, workers):
        records.books.count_anew(claim)
    for worker in sorted(workers):
        if worker in records.workers:
            records.workers[worker] = replace(records.workers[worker], lease=0.0)
    return Reclaimed(tuple(ready), tuple(poison))


def notice_boot(records: Records) -> None:
    """J63, asked when the store is opened: a boot clock means nothing across boots, so every
    lease is set to 0."""
    if records.boot_id == records.clock.boot_id:
        return
    records.boot_id = records.clock.boot_id
    for id_ in list(records.running.every()):
        records.put(replace(records.jobs[id_], lease=0.0))
    for worker, known in records.workers.items():
        records.workers[worker] = replace(known, lease=0.0)
    for duty, leader in records.leaders.items():
        records.leaders[duty] = replace(leader, lease=0.0)
    records.books.notice_boot()
    for queue in records.queues.values():
        queue.lanes.reopen_all()


def _take_back(records: Records, job: Job, *, died: bool) -> Job:
    now = records.clock.wall()
    after = transitions.reclaimed(job, records.queues[job.queue].settings, now, died=died)
    record_attempt(records, job, after, "reclaimed", now)
    records.queues[job.queue].count("reclaimed", now)
    move(records, after, now)
    records.books.count_anew((job.id, job.fence, job.claim))
    return after
