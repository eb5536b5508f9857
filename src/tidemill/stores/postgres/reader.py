"""Reads jobs, counts, history, logs, attempts, workers, queues and checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec
from asyncpg import Record

from tidemill.contract.jobs import Arrival
from tidemill.contract.queues import QueueInfo, make_queue_info
from tidemill.contract.reader import (
    ATTEMPTS_KEPT,
    LOG_LINES_PER_ATTEMPT,
    MAX_AHEAD_COUNTED,
    AttemptRecord,
    Backlog,
    JobPage,
    LogLine,
    QueueMinute,
    WorkerInfo,
)
from tidemill.core.checkpoints import Checkpoint, StepKey
from tidemill.core.filters import Filter
from tidemill.core.forecast.backlog import Demand, average_needs, sample_size
from tidemill.core.jobs import Error, Job
from tidemill.core.needs import combine_needs, is_batch_lane
from tidemill.core.states import State
from tidemill.stores.postgres import find as postgres_find
from tidemill.stores.postgres.connection import PostgresConnection
from tidemill.stores.postgres.find import iter_jobs
from tidemill.stores.postgres.load_jobs import arrival_of, checkpoint_of, worker_of
from tidemill.stores.postgres.load_lanes import queue_settings_of
from tidemill.stores.postgres.rows import COLUMNS, batching_of, job_of, needs_of
from tidemill.stores.postgres.statements import load_statements

SQL = load_statements("reader")
CLOCK = load_statements("clock")
PRUNE = load_statements("prune")
MAX_COUNT_ROWS = 20_000
"""Adding up this many rows takes a few milliseconds."""
_GET = SQL.get.replace("{columns}", COLUMNS)
_ERROR = msgspec.json.Decoder(Error)


async def wall(connection: PostgresConnection) -> float:
    (row,) = await connection.fetch(CLOCK.read_clock, *connection.clock.arguments())
    return connection.clock.update(row["wall"], row["boot"], row["epoch"]).wall


async def get(connection: PostgresConnection, ids: Sequence[str]) -> list[Job | None]:
    """Returns one job per id, in the order of `ids`; None for an id that does not exist (R1)."""
    found = {row["id"]: job_of(row) for row in await connection.fetch(_GET, list(ids))}
    return [found.get(id_) for id_ in ids]


async def find(
    connection: PostgresConnection, job_filter: Filter, limit: int, cursor: int | None, scan_limit: int | None
) -> JobPage:
    """Returns one page of the jobs that match, newest first (R2, R11). `cursor`: the sequence number
    (`Job.seq`) where the previous page ended. `scan_limit`: the largest number of jobs to examine."""
    if scan_limit is not None:
        return await postgres_find.find_page(connection, job_filter, limit, cursor, scan_limit)
    found: list[Job] = []
    jobs = iter_jobs(connection.fetch, job_filter, newest_first=True, limit=limit + 1, before=cursor)
    async for job in jobs:
        found.append(job)
        if len(found) > limit:
            break
    page = tuple(found[:limit])
    return JobPage(page, page[-1].seq if page and len(found) > limit else None)


async def oldest_first(connection: PostgresConnection, job_filter: Filter, limit: int) -> tuple[str, ...]:
    found: list[str] = []
    async for job in iter_jobs(connection.fetch, job_filter, newest_first=False, limit=limit):
        if len(found) == limit:
            break
        found.append(job.id)
    return tuple(found)


async def counts(connection: PostgresConnection) -> dict[str, dict[State, int]]:
    """Returns the number of jobs by queue and state (R3). States without jobs are left out. Also merges the
    rows of the table of counts if there are more than 20 000."""
    found: dict[str, dict[State, int]] = {}
    read = 0
    for queue, state, jobs, rows in await connection.fetch(SQL.counts):
        read += rows
        if jobs:
            found.setdefault(queue, {})[State(state)] = jobs
    if read > MAX_COUNT_ROWS:
        await connection.fetch(PRUNE.compact_counts)
    return found


async def history(connection: PostgresConnection, queue: str, since: float) -> list[QueueMinute]:
    """Returns the history of a queue, one entry per minute (R4). It starts with the minute that contains the
    wall time `since`."""
    return [QueueMinute(*row) for row in await connection.fetch(SQL.history, queue, since // 60 * 60)]


async def logs(connection: PostgresConnection, job: str) -> list[LogLine]:
    """Returns the log lines of a job, the last 200 of each attempt (R5)."""
    return [LogLine(*row) for row in await connection.fetch(SQL.logs, job, LOG_LINES_PER_ATTEMPT)]


async def attempts(connection: PostgresConnection, job: str) -> list[AttemptRecord]:
    """Returns the last 100 unsuccessful attempts of a job (R6)."""
    return [_attempt(*row) for row in await connection.fetch(SQL.attempts, job, ATTEMPTS_KEPT)]


def _attempt(*row: Any) -> AttemptRecord:
    *values, error = row
    values.append(None if error is None else _ERROR.decode(error))
    return AttemptRecord(*values)


async def workers(connection: PostgresConnection) -> list[WorkerInfo]:
    """Returns the workers whose lease has not expired (R7)."""
    return [worker_of(*row) for row in await connection.fetch(SQL.workers, *connection.clock.arguments())]


async def backlog(connection: PostgresConnection, queue: str) -> Backlog:
    """Returns the backlog of a queue (R8): since when its oldest ready job waits, when the next job is due,
    how many jobs wait for a retry, and when a job last ended."""
    (row,) = await connection.fetch(SQL.backlog, queue)
    return Backlog(**dict(row))


async def ahead(connection: PostgresConnection, job: str) -> int | None:
    """Returns how many ready jobs of the same lane will start before this job, at most 10 000 (R9). Returns
    None if the job is not ready."""
    rows = await connection.fetch(SQL.ahead, job, MAX_AHEAD_COUNTED)
    return rows[0]["ahead"] if rows else None


async def demand(connection: PostgresConnection) -> list[Demand]:
    """Returns how many ready jobs wait for pools, and the average units that one of them needs (R10). There
    is one entry per queue, lane and priority."""
    ((lanes,),) = await connection.fetch(SQL.pooled_lanes)
    rows = await connection.fetch(SQL.demand, sample_size(lanes))
    return [_demand(list(sample)) for _, sample in groupby(rows, lambda row: tuple(row)[:3])]


def _demand(sample: list[Record]) -> Demand:
    queue, lane, priority, jobs, *_ = sample[0]
    needs = [combine_needs(needs_of(row["needs"]), needs_of(row["deferred_needs"])) for row in sample]
    return Demand(
        queue=queue,
        lane=lane,
        priority=priority,
        jobs=jobs,
        needs=average_needs(needs, shares_calls=is_batch_lane(lane)),
        batching=batching_of(sample[0]["batching"]),
    )


async def queues(connection: PostgresConnection) -> list[QueueInfo]:
    """Returns all queues with their settings, override and pause (Q5)."""
    now = await wall(connection)
    found: list[QueueInfo] = []
    for name, *texts in await connection.fetch(SQL.queues):
        row = queue_settings_of(*texts)
        found.append(make_queue_info(name, row.declared, row.override, row.pause, now))
    return found


async def arrivals(connection: PostgresConnection, limit: int, after: int) -> list[Arrival]:
    return [arrival_of(*row) for row in await connection.fetch(SQL.arrivals, after, limit)]


async def checkpoints(connection: PostgresConnection, job: str) -> list[Checkpoint]:
    """Returns the checkpoints of a job, in the order in which their steps first began (K6)."""
    return [checkpoint_of(*row) for row in await connection.fetch(SQL.checkpoints, job)]


async def kept_step(connection: PostgresConnection, job: str, step: StepKey) -> bytes | None:
    """Returns the stored result of a step; None if no result is stored (K7)."""
    rows = await connection.fetch(SQL.result, job, step.name, step.arguments)
    return rows[0]["result"].encode() if rows and rows[0]["result"] is not None else None
