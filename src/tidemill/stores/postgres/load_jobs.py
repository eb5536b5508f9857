"""Loads jobs, workers, checkpoints and arrivals for the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from asyncpg import Record

from tidemill.contract.jobs import Arrival
from tidemill.contract.reader import WorkerInfo
from tidemill.core.checkpoints import Checkpoint, StepAttempt, StepKey
from tidemill.core.jobs import Job
from tidemill.core.queues import InsertVerdict
from tidemill.engine import queries
from tidemill.engine.queries import KeyPrefix, RowQuery, StoreCounters
from tidemill.engine.records import ExpiryTerm, KnownId, KnownWorker
from tidemill.stores.postgres.rows import COLUMNS, job_of, text_array
from tidemill.stores.postgres.statements import load_statements
from tidemill.stores.postgres.transaction import PostgresTransaction

if TYPE_CHECKING:
    from tidemill.stores.postgres.load_lanes import PlainLane


LoadedRows = dict[RowQuery, Any]


class TransactionView:
    """An engine transaction with the lanes that it has loaded so far.

    - `numbers`: the store's counters and clocks
    - `plain_lanes`: per queue, the first jobs of the lane '' (jobs without key, pool or batch)
    - `open_lanes`: per queue, the lanes that are not blocked and need no pool, without the lane ''"""

    def __init__(self, transaction: PostgresTransaction, numbers: StoreCounters) -> None:
        self.transaction, self.numbers = transaction, numbers
        self.plain_lanes: dict[str, PlainLane] = {}
        self.open_lanes: dict[str, KeyPrefix] = {}

    async def fetch(self, sql: str, *values: Any) -> list[Record]:
        return await self.transaction.fetch(sql, *values)


def add_jobs(rows: Iterable[Record], found: LoadedRows) -> list[Job]:
    jobs = [job_of(row) for row in rows]
    for job in jobs:
        found[queries.JobById(job.id)] = job
    return jobs


SQL = load_statements("load_jobs")
_JOBS = SQL.jobs.replace("{columns}", COLUMNS)
_RUNNING_JOBS = SQL.running_jobs_of.replace("{columns}", COLUMNS)
MAX_OVERDUE_JOBS = 500
"""Most jobs per transaction: it must end in time, however many jobs a dead worker had."""
_OVERDUE = SQL.overdue.replace("{columns}", COLUMNS)
_QUEUES = msgspec.json.Decoder(tuple[str, ...])


async def load_jobs(view: TransactionView, requested: Iterable[queries.JobById], found: LoadedRows) -> None:
    ids = [want.id for want in requested if want not in found]
    found.update(dict.fromkeys(map(queries.JobById, ids)))
    add_jobs(await view.fetch(_JOBS, ids), found)


async def load_running_jobs(
    view: TransactionView, requested: Iterable[queries.WorkerRunningJobs], found: LoadedRows
) -> None:
    held: dict[str, list[str]] = {want.worker: [] for want in requested}
    running = add_jobs(await view.fetch(_RUNNING_JOBS, list(held)), found)
    for job in sorted(running, key=lambda job: job.seq):
        held[job.worker or ""].append(job.id)
    for worker, ids in held.items():
        found[queries.WorkerRunningJobs(worker)] = tuple(ids)


async def load_overdue_jobs(
    view: TransactionView, requested: Iterable[queries.OverdueJobs], found: LoadedRows
) -> None:
    for want in requested:
        rows = await view.fetch(_OVERDUE, view.numbers.boot, list(want.dead), MAX_OVERDUE_JOBS)
        overdue = add_jobs(rows, found)
        found[want] = tuple(job.id for job in overdue)


async def load_unique_holders(
    view: TransactionView, requested: Iterable[queries.UniqueHolders], found: LoadedRows
) -> None:
    at = list(requested)
    rows = await view.fetch(SQL.holders, [want.queue for want in at], [want.key for want in at])
    ids: dict[tuple[str, str], list[str]] = defaultdict(list)
    for queue, key, id_ in rows:
        ids[queue, key].append(id_)
    for want in at:
        found[want] = tuple(ids[want.queue, want.key])


async def load_successors(
    view: TransactionView, requested: Iterable[queries.JobSuccessors], found: LoadedRows
) -> None:
    ids: dict[str, list[str]] = {want.job: [] for want in requested}
    for after, id_ in await view.fetch(SQL.successors, list(ids)):
        ids[after].append(id_)
    for job, waiting in ids.items():
        found[queries.JobSuccessors(job)] = tuple(waiting)


async def load_known_ids(
    view: TransactionView, requested: Iterable[queries.KnownIdByRequest], found: LoadedRows
) -> None:
    ids = [want.request for want in requested]
    found.update(dict.fromkeys(map(queries.KnownIdByRequest, ids)))
    for id_, verdict, job, fence, claim, *term in await view.fetch(SQL.known_ids, ids):
        found[queries.KnownIdByRequest(id_)] = KnownId(
            InsertVerdict(verdict), job, fence, claim, ExpiryTerm(*term)
        )


async def load_running_counts(
    view: TransactionView, requested: Iterable[queries.KeyRunningCount], found: LoadedRows
) -> None:
    at = list(requested)
    rows = await view.fetch(SQL.running_by_key, list({want.queue for want in at}))
    running = {(queue, key): count for queue, key, count in rows}
    for want in at:
        found[want] = running.get((want.queue, want.key), 0)


async def load_counts(
    view: TransactionView, requested: Iterable[queries.StateCount], found: LoadedRows
) -> None:
    at = list(requested)
    rows = await view.fetch(SQL.counts, [want.queue for want in at], [want.state.value for want in at])
    for want, (_, _, count) in zip(at, rows, strict=True):
        found[want] = count


async def load_checkpoints(
    view: TransactionView, requested: Iterable[queries.JobCheckpoints], found: LoadedRows
) -> None:
    checkpoints: dict[str, list[Checkpoint]] = {want.job: [] for want in requested}
    for job, *row in await view.fetch(SQL.checkpoints, list(checkpoints)):
        checkpoints[job].append(checkpoint_of(*row))
    for job, of_job in checkpoints.items():
        found[queries.JobCheckpoints(job)] = tuple(of_job)


def checkpoint_of(  # noqa: PLR0917 - a row
    name: str,
    arguments: str,
    paid: bool,
    begun: float,
    fence: int,
    claim: int,
    number: int,
    kept: float | None,
    result: str | None,
    unknown: int,
) -> Checkpoint:
    return Checkpoint(
        step=StepKey(name, arguments),
        paid=paid,
        begun=begun,
        by=StepAttempt(fence, claim, number),
        kept=kept,
        result=None if result is None else result.encode(),
        unknown=unknown,
    )


async def load_arrivals(
    view: TransactionView, requested: Iterable[queries.ArrivalBySeq], found: LoadedRows
) -> None:
    seqs = [want.seq for want in requested]
    found.update(dict.fromkeys(map(queries.ArrivalBySeq, seqs)))
    for row in await view.fetch(SQL.arrivals, text_array(seqs)):
        found[queries.ArrivalBySeq(row["seq"])] = arrival_of(*row)


def arrival_of(seq: int, id_: str, task: str, payload: str, options: str, arrived: float) -> Arrival:  # noqa: PLR0917 - a row
    return Arrival(
        seq=seq, id=id_, task=task, payload=payload.encode(), options=options.encode(), arrived=arrived
    )


async def load_workers(
    view: TransactionView, requested: Iterable[queries.WorkerById], found: LoadedRows
) -> None:
    ids = [want.id for want in requested]
    found.update(dict.fromkeys(map(queries.WorkerById, ids)))
    for row in await view.fetch(SQL.workers, ids):
        info = worker_of(row["id"], row["host"], row["pid"], row["queues"], row["concurrency"], row["seen"])
        found[queries.WorkerById(row["id"])] = KnownWorker(info, row["lease"], row["number"])


def worker_of(  # noqa: PLR0917 - a row
    id_: str, host: str, pid: int, queues: str, concurrency: int, seen: float, holds: int = 0
) -> WorkerInfo:
    return WorkerInfo(
        id=id_,
        host=host,
        pid=pid,
        queues=_QUEUES.decode(queues),
        concurrency=concurrency,
        holds=holds,
        seen=seen,
    )
