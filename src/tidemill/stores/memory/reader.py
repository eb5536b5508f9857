"""Reading: jobs, counts, history, logs, attempts, workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tidemill.contract.reader import (
    AHEAD_COUNTED,
    AttemptRecord,
    Backlog,
    LogLine,
    Minute,
    Page,
    WorkerInfo,
)
from tidemill.core.demand import Demand, averaged, sampled
from tidemill.core.filters import Filter, checked
from tidemill.core.job import Job
from tidemill.core.matching import matches
from tidemill.core.needs import is_of_batches, together
from tidemill.core.states import FINAL, State
from tidemill.engine.amend import oldest_first
from tidemill.engine.records import Records


def get(records: Records, ids: Sequence[str]) -> list[Job | None]:
    return [records.jobs.get(id_) for id_ in ids]


def find(records: Records, wanted: Filter, limit: int, cursor: int | None, looks: int | None) -> Page:
    """R2, R11. The cursor is the seq of the last job that counts; new jobs have a higher one. What SQL has
    indexes for is passed over."""
    checked(wanted)
    older = (job for job in _newest_first(records, wanted) if cursor is None or job.seq < cursor)
    found: list[Job] = []
    last = cursor
    for looked, job in enumerate(older):
        if looked == looks and wanted.ids is None:
            return Page(tuple(found), last, partial=len(found) < limit)
        if matches(wanted, job):
            if len(found) == limit:
                return Page(tuple(found), found[-1].seq if found else None)
            found.append(job)
        last = job.seq
    return Page(tuple(found), None)


def _newest_first(records: Records, wanted: Filter) -> Iterator[Job]:
    if wanted.ids is not None:
        return reversed(list(oldest_first(records, wanted)))
    by_order = Filter(id_prefix=wanted.id_prefix, queue=wanted.queue, states=wanted.states, flow=wanted.flow)
    return (job for job in reversed(records.jobs.values()) if matches(by_order, job))


def counts(records: Records) -> dict[str, dict[State, int]]:
    """R3. Only what there is: states and queues without a job are left out."""
    found = {
        name: {state: count for state, count in queue.counts.items() if count}
        for name, queue in records.queues.items()
    }
    return {name: states for name, states in found.items() if states}


def history(records: Records, queue: str, since: float) -> list[Minute]:
    """R4. Minutes that began at `since` or later, and the one it falls into."""
    known = records.queues.get(queue)
    minutes = {} if known is None else known.history
    return [
        Minute(at, *(count[what] for what in Minute.__struct_fields__[1:]))
        for at, count in sorted(minutes.items())
        if at >= since // 60 * 60
    ]


def logs(records: Records, job: str) -> list[LogLine]:
    attempts = records.logs.get(job, {})
    return [line for attempt in sorted(attempts) for line in attempts[attempt]]


def attempts(records: Records, job: str) -> list[AttemptRecord]:
    return list(records.attempts.get(job, ()))


def workers(records: Records) -> list[WorkerInfo]:
    """R7, by id. `holds` counts the jobs running in the worker's name now."""
    boot = records.clock.boot()
    return [
        replace(known.info, holds=len(records.running.of(worker)))
        for worker, known in sorted(records.workers.items())
        if known.lease > boot
    ]


def backlog(records: Records, name: str) -> Backlog:
    """R8. A job is ready since it was due."""
    queue = records.queues.get(name)
    if queue is None:
        return Backlog(oldest_ready=None, next_due=None, retrying=0, last_ended=None)
    head = queue.scheduled.head()
    shelves = (*queue.ended.values(), queue.ended_parts)
    ended = [order[-1][0] for order in shelves if len(order)]
    minutes = [at for at, count in queue.history.items() if any(count[state.value] for state in FINAL)]
    return Backlog(
        oldest_ready=min(queue.lanes.oldest_dues(), default=None),
        next_due=None if head is None else head[0],
        retrying=queue.retrying,
        last_ended=max(ended + minutes, default=None),
    )


def ahead(records: Records, id_: str) -> int | None:
    """R9."""
    job = records.jobs.get(id_)
    if job is None or job.state is not State.READY:
        return None
    return min(records.queues[job.queue].lanes.place_of(job), AHEAD_COUNTED)


def demand(records: Records) -> list[Demand]:
    """R10."""
    found: list[Demand] = []
    lanes = sum(len(list(queue.lanes.pooled())) for queue in records.queues.values())
    for name, queue in sorted(records.queues.items()):
        for lane in queue.lanes.pooled():
            for priority, count in queue.lanes.priorities(lane):
                ids = queue.lanes.ids_of(lane, priority, sampled(lanes))
                sample = [records.jobs[id_] for id_ in ids]
                found.append(
                    Demand(
                        queue=name,
                        lane=lane,
                        priority=priority,
                        jobs=count,
                        needs=averaged(
                            [together(job.needs, job.extra) for job in sample],
                            shares_calls=is_of_batches(lane),
                        ),
                        batching=sample[0].batching,
                    )
                )
    return found
