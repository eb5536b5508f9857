"""Reads jobs, counts, history, logs, attempts and workers of the memory store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tidemill.contract.reader import (
    MAX_AHEAD_COUNTED,
    AttemptRecord,
    Backlog,
    JobPage,
    LogLine,
    QueueMinute,
    WorkerInfo,
)
from tidemill.core.filters import Filter, check_filter, matches_filter
from tidemill.core.forecast.backlog import Demand, average_needs, sample_size
from tidemill.core.jobs import Job
from tidemill.core.needs import combine_needs, is_batch_lane
from tidemill.core.states import FINAL, State
from tidemill.engine.queue_changes import matching_jobs
from tidemill.engine.records import Records


def get(records: Records, ids: Sequence[str]) -> list[Job | None]:
    return [records.jobs.get(id_) for id_ in ids]


def find(
    records: Records, job_filter: Filter, limit: int, cursor: int | None, scan_limit: int | None
) -> JobPage:
    """Returns one page of the jobs that match `job_filter`, newest first (R2, R11). `cursor`: the sequence
    number (`Job.seq`) of the last job that the previous page examined. `scan_limit`: the largest number of
    jobs to examine."""
    check_filter(job_filter)
    older = (job for job in _newest_first(records, job_filter) if cursor is None or job.seq < cursor)
    found: list[Job] = []
    last = cursor
    for scanned, job in enumerate(older):
        if scanned == scan_limit and job_filter.ids is None:
            return JobPage(tuple(found), last, partial=len(found) < limit)
        if matches_filter(job_filter, job):
            if len(found) == limit:
                return JobPage(tuple(found), found[-1].seq if found else None)
            found.append(job)
        last = job.seq
    return JobPage(tuple(found), None)


def _newest_first(records: Records, job_filter: Filter) -> Iterator[Job]:
    if job_filter.ids is not None:
        return reversed(list(matching_jobs(records, job_filter)))
    by_order = Filter(
        id_prefix=job_filter.id_prefix, queue=job_filter.queue, states=job_filter.states, flow=job_filter.flow
    )
    return (job for job in reversed(records.jobs.values()) if matches_filter(by_order, job))


def counts(records: Records) -> dict[str, dict[State, int]]:
    """Returns the number of jobs by queue and state (R3). States and queues without jobs are left out."""
    found = {
        name: {state: count for state, count in queue.counts.items() if count}
        for name, queue in records.queues.items()
    }
    return {name: states for name, states in found.items() if states}


def history(records: Records, queue: str, since: float) -> list[QueueMinute]:
    """Returns the history of a queue, one entry per minute, oldest first (R4). It starts with the minute that
    contains the wall time `since`."""
    known = records.queues.get(queue)
    minutes = {} if known is None else known.history
    return [
        QueueMinute(at, *(count[column] for column in QueueMinute.__struct_fields__[1:]))
        for at, count in sorted(minutes.items())
        if at >= since // 60 * 60
    ]


def logs(records: Records, job: str) -> list[LogLine]:
    attempts = records.logs.get(job, {})
    return [line for attempt in sorted(attempts) for line in attempts[attempt]]


def attempts(records: Records, job: str) -> list[AttemptRecord]:
    return list(records.attempts.get(job, ()))


def workers(records: Records) -> list[WorkerInfo]:
    """Returns the workers whose lease has not expired, sorted by id (R7). `holds`: the number of jobs that a
    worker runs now."""
    boot = records.clock.boot()
    return [
        replace(known.info, holds=len(records.running.of(worker)))
        for worker, known in sorted(records.workers.items())
        if known.lease > boot
    ]


def backlog(records: Records, name: str) -> Backlog:
    """Returns the backlog of a queue (R8)."""
    queue = records.queues.get(name)
    if queue is None:
        return Backlog(oldest_ready=None, next_due=None, retrying=0, last_ended=None)
    head = queue.scheduled.head()
    ended_orders = (*queue.ended.values(), queue.ended_parts)
    ended = [order[-1][0] for order in ended_orders if len(order)]
    minutes = [at for at, count in queue.history.items() if any(count[state.value] for state in FINAL)]
    return Backlog(
        oldest_ready=min(queue.lanes.oldest_dues(), default=None),
        next_due=None if head is None else head[0],
        retrying=queue.retrying,
        last_ended=max(ended + minutes, default=None),
    )


def ahead(records: Records, id_: str) -> int | None:
    """Returns how many ready jobs of the same lane will start before this job, at most 10 000 (R9). Returns
    None if the job is not ready."""
    job = records.jobs.get(id_)
    if job is None or job.state is not State.READY:
        return None
    return min(records.queues[job.queue].lanes.place_of(job), MAX_AHEAD_COUNTED)


def demand(records: Records) -> list[Demand]:
    """Returns how many ready jobs wait for pools, and the average units that one of them needs (R10). There
    is one entry per queue, lane and priority."""
    found: list[Demand] = []
    lanes = sum(len(list(queue.lanes.pooled())) for queue in records.queues.values())
    for name, queue in sorted(records.queues.items()):
        for lane in queue.lanes.pooled():
            for priority, count in queue.lanes.priorities(lane):
                ids = queue.lanes.ids_of(lane, priority, sample_size(lanes))
                sample = [records.jobs[id_] for id_ in ids]
                found.append(
                    Demand(
                        queue=name,
                        lane=lane,
                        priority=priority,
                        jobs=count,
                        needs=average_needs(
                            [combine_needs(job.needs, job.deferred_needs) for job in sample],
                            shares_calls=is_batch_lane(lane),
                        ),
                        batching=sample[0].batching,
                    )
                )
    return found
