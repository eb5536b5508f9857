"""Reading: jobs, counts, history, logs, attempts, workers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec
from asyncpg import Record

from tidemill.contract.jobs import Arrival
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import (
    AHEAD_COUNTED,
    ATTEMPTS_KEPT,
    LOG_LINES,
    AttemptRecord,
    Backlog,
    LogLine,
    Minute,
    Page,
    WorkerInfo,
)
from tidemill.core.checkpoints import Checkpoint, Step
from tidemill.core.demand import Demand, averaged, sampled
from tidemill.core.filters import Filter
from tidemill.core.job import Error, Job
from tidemill.core.needs import is_of_batches, together
from tidemill.core.queues import in_force
from tidemill.core.states import State
from tidemill.stores.postgres import pages
from tidemill.stores.postgres.connection import Connection
from tidemill.stores.postgres.find import search
from tidemill.stores.postgres.look_jobs import arrival_of, checkpoint_of, worker_of
from tidemill.stores.postgres.look_lanes import settings_of
from tidemill.stores.postgres.rows import COLUMNS, batching_of, job_of, needs_of
from tidemill.stores.postgres.statements import load

SQL = load("reader")
CLOCK = load("clock")
PRUNE = load("prune")
UNFOLDED = 20_000
"""So many rows are added up in a few milliseconds."""
_GET = SQL.get.replace("{columns}", COLUMNS)
_ERROR = msgspec.json.Decoder(Error)


async def wall(connection: Connection) -> float:
    (row,) = await connection.fetch(CLOCK.read_clock, *connection.clock.asked())
    return connection.clock.heard(row["wall"], row["boot"], row["epoch"]).wall


async def get(connection: Connection, ids: Sequence[str]) -> list[Job | None]:
    """R1."""
    found = {row["id"]: job_of(row) for row in await connection.fetch(_GET, list(ids))}
    return [found.get(id_) for id_ in ids]


async def find(
    connection: Connection, wanted: Filter, limit: int, cursor: int | None, looks: int | None
) -> Page:
    """R2. The cursor is the place of the page's last job; new jobs have a higher one."""
    if looks is not None:
        return await pages.find(connection, wanted, limit, cursor, looks)
    found: list[Job] = []
    async for job in search(connection.fetch, wanted, newest_first=True, limit=limit + 1, before=cursor):
        found.append(job)
        if len(found) > limit:
            break
    page = tuple(found[:limit])
    return Page(page, page[-1].seq if page and len(found) > limit else None)


async def oldest(connection: Connection, wanted: Filter, limit: int) -> tuple[str, ...]:
    found: list[str] = []
    async for job in search(connection.fetch, wanted, newest_first=False, limit=limit):
        if len(found) == limit:
            break
        found.append(job.id)
    return tuple(found)


async def counts(connection: Connection) -> dict[str, dict[State, int]]:
    """R3. Whoever finds that nobody has folded the rows for long does so for the next."""
    found: dict[str, dict[State, int]] = {}
    read = 0
    for queue, state, jobs, rows in await connection.fetch(SQL.counts):
        read += rows
        if jobs:
            found.setdefault(queue, {})[State(state)] = jobs
    if read > UNFOLDED:
        await connection.fetch(PRUNE.fold_counts)
    return found


async def history(connection: Connection, queue: str, since: float) -> list[Minute]:
    """R4."""
    return [Minute(*row) for row in await connection.fetch(SQL.history, queue, since // 60 * 60)]


async def logs(connection: Connection, job: str) -> list[LogLine]:
    """R5."""
    return [LogLine(*row) for row in await connection.fetch(SQL.logs, job, LOG_LINES)]


async def attempts(connection: Connection, job: str) -> list[AttemptRecord]:
    """R6."""
    return [_attempt(*row) for row in await connection.fetch(SQL.attempts, job, ATTEMPTS_KEPT)]


def _attempt(*row: Any) -> AttemptRecord:
    *told, error = row
    told.append(None if error is None else _ERROR.decode(error))
    return AttemptRecord(*told)


async def workers(connection: Connection) -> list[WorkerInfo]:
    """R7."""
    return [worker_of(*row) for row in await connection.fetch(SQL.workers, *connection.clock.asked())]


async def backlog(connection: Connection, queue: str) -> Backlog:
    """R8."""
    (row,) = await connection.fetch(SQL.backlog, queue)
    return Backlog(**dict(row))


async def ahead(connection: Connection, job: str) -> int | None:
    """R9."""
    rows = await connection.fetch(SQL.ahead, job, AHEAD_COUNTED)
    return rows[0]["ahead"] if rows else None


async def demand(connection: Connection) -> list[Demand]:
    """R10."""
    ((lanes,),) = await connection.fetch(SQL.pooled_lanes)
    rows = await connection.fetch(SQL.demand, sampled(lanes))
    return [_demand(list(sample)) for _, sample in groupby(rows, lambda row: tuple(row)[:3])]


def _demand(sample: list[Record]) -> Demand:
    queue, lane, priority, jobs, *_ = sample[0]
    needs = [together(needs_of(row["needs"]), needs_of(row["extra"])) for row in sample]
    return Demand(
        queue=queue,
        lane=lane,
        priority=priority,
        jobs=jobs,
        needs=averaged(needs, shares_calls=is_of_batches(lane)),
        batching=batching_of(sample[0]["batching"]),
    )


async def queues(connection: Connection) -> list[QueueInfo]:
    """Q5."""
    now = await wall(connection)
    found: list[QueueInfo] = []
    for name, *texts in await connection.fetch(SQL.queues):
        row = settings_of(*texts)
        holds = row.override is not None and row.override.holds(now)
        found.append(
            QueueInfo(
                name=name,
                declared=row.declared,
                override=row.override if holds else None,
                settings=in_force(row.declared, row.override, now),
                pause=row.pause,
            )
        )
    return found


async def arrivals(connection: Connection, limit: int, after: int) -> list[Arrival]:
    return [arrival_of(*row) for row in await connection.fetch(SQL.arrivals, after, limit)]


async def checkpoints(connection: Connection, job: str) -> list[Checkpoint]:
    """K6."""
    return [checkpoint_of(*row) for row in await connection.fetch(SQL.checkpoints, job)]


async def kept_step(connection: Connection, job: str, step: Step) -> bytes | None:
    """K7."""
    rows = await connection.fetch(SQL.result, job, step.name, step.arguments)
    return rows[0]["result"].encode() if rows and rows[0]["result"] is not None else None
