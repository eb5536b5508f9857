"""Jobs, workers and what is kept with them, as a step wants to know them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from tidemill.contract.jobs import Arrival
from tidemill.contract.reader import WorkerInfo
from tidemill.core.checkpoints import Checkpoint, Step, Try
from tidemill.core.queues import Verdict
from tidemill.engine import wants
from tidemill.engine.records import KnownWorker, Remembered, Term
from tidemill.stores.postgres.columns import words
from tidemill.stores.postgres.rows import COLUMNS
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.view import Found, View, put_jobs

SQL = load("look")
_JOBS = SQL.jobs.replace("{columns}", COLUMNS)
_RUNNING_OF = SQL.running_of.replace("{columns}", COLUMNS)
OVERDUE_AT_ONCE = 500
"""A step has to end in time, however many jobs a dead worker had."""
_OVERDUE = SQL.overdue.replace("{columns}", COLUMNS)
_QUEUES = msgspec.json.Decoder(tuple[str, ...])


async def jobs(view: View, wanted: Iterable[wants.JobOf], found: Found) -> None:
    ids = [want.id for want in wanted if want not in found]
    found.update(dict.fromkeys(map(wants.JobOf, ids)))
    put_jobs(await view.fetch(_JOBS, ids), found)


async def running_of(view: View, wanted: Iterable[wants.RunningOf], found: Found) -> None:
    held: dict[str, list[str]] = {want.worker: [] for want in wanted}
    running = put_jobs(await view.fetch(_RUNNING_OF, list(held)), found)
    for job in sorted(running, key=lambda job: job.seq):
        held[job.worker or ""].append(job.id)
    for worker, ids in held.items():
        found[wants.RunningOf(worker)] = tuple(ids)


async def overdue(view: View, wanted: Iterable[wants.Overdue], found: Found) -> None:
    for want in wanted:
        rows = await view.fetch(_OVERDUE, view.numbers.boot, list(want.dead), OVERDUE_AT_ONCE)
        over = put_jobs(rows, found)
        found[want] = tuple(job.id for job in over)


async def holders(view: View, wanted: Iterable[wants.HoldersOf], found: Found) -> None:
    at = list(wanted)
    rows = await view.fetch(SQL.holders, [want.queue for want in at], [want.key for want in at])
    ids: dict[tuple[str, str], list[str]] = defaultdict(list)
    for queue, key, id_ in rows:
        ids[queue, key].append(id_)
    for want in at:
        found[want] = tuple(ids[want.queue, want.key])


async def successors(view: View, wanted: Iterable[wants.SuccessorsOf], found: Found) -> None:
    ids: dict[str, list[str]] = {want.job: [] for want in wanted}
    for after, id_ in await view.fetch(SQL.successors, list(ids)):
        ids[after].append(id_)
    for job, waiting in ids.items():
        found[wants.SuccessorsOf(job)] = tuple(waiting)


async def recalled(view: View, wanted: Iterable[wants.Recalled], found: Found) -> None:
    ids = [want.request for want in wanted]
    found.update(dict.fromkeys(map(wants.Recalled, ids)))
    for id_, verdict, job, fence, claim, *term in await view.fetch(SQL.remembered, ids):
        found[wants.Recalled(id_)] = Remembered(Verdict(verdict), job, fence, claim, Term(*term))


async def running_in(view: View, wanted: Iterable[wants.RunningIn], found: Found) -> None:
    at = list(wanted)
    rows = await view.fetch(SQL.running_in, list({want.queue for want in at}))
    running = {(queue, key): count for queue, key, count in rows}
    for want in at:
        found[want] = running.get((want.queue, want.key), 0)


async def counts(view: View, wanted: Iterable[wants.CountOf], found: Found) -> None:
    at = list(wanted)
    rows = await view.fetch(SQL.counts, [want.queue for want in at], [want.state.value for want in at])
    for want, (_, _, count) in zip(at, rows, strict=True):
        found[want] = count


async def checkpoints(view: View, wanted: Iterable[wants.StepsOf], found: Found) -> None:
    kept: dict[str, list[Checkpoint]] = {want.job: [] for want in wanted}
    for job, *row in await view.fetch(SQL.checkpoints, list(kept)):
        kept[job].append(checkpoint_of(*row))
    for job, of_job in kept.items():
        found[wants.StepsOf(job)] = tuple(of_job)


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
        step=Step(name, arguments),
        paid=paid,
        begun=begun,
        by=Try(fence, claim, number),
        kept=kept,
        result=None if result is None else result.encode(),
        unknown=unknown,
    )


async def arrivals(view: View, wanted: Iterable[wants.ArrivalOf], found: Found) -> None:
    seqs = [want.seq for want in wanted]
    found.update(dict.fromkeys(map(wants.ArrivalOf, seqs)))
    for row in await view.fetch(SQL.arrivals, words(seqs)):
        found[wants.ArrivalOf(row["seq"])] = arrival_of(*row)


def arrival_of(seq: int, id_: str, task: str, payload: str, options: str, arrived: float) -> Arrival:  # noqa: PLR0917 - a row
    return Arrival(
        seq=seq, id=id_, task=task, payload=payload.encode(), options=options.encode(), arrived=arrived
    )


async def workers(view: View, wanted: Iterable[wants.WorkerOf], found: Found) -> None:
    ids = [want.id for want in wanted]
    found.update(dict.fromkeys(map(wants.WorkerOf, ids)))
    for row in await view.fetch(SQL.workers, ids):
        info = worker_of(row["id"], row["host"], row["pid"], row["queues"], row["concurrency"], row["seen"])
        found[wants.WorkerOf(row["id"])] = KnownWorker(info, row["lease"], row["number"])


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
