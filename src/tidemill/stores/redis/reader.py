"""Reads jobs with their logs, attempts and checkpoints. Also reads workers, the position of a job in its
lane, and how many jobs wait for pools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.contract.jobs import Arrival
from tidemill.contract.reader import MAX_AHEAD_COUNTED, AttemptRecord, LogLine, WorkerInfo
from tidemill.core.checkpoints import Checkpoint, StepKey
from tidemill.core.forecast.backlog import Demand, average_needs, sample_size
from tidemill.core.jobs import Job
from tidemill.core.needs import LANE_SEPARATOR, combine_needs, is_batch_lane
from tidemill.core.states import State
from tidemill.stores.redis import keys, rows
from tidemill.stores.redis.find import find, get, oldest_first
from tidemill.stores.redis.job_codec import lane_member
from tidemill.stores.redis.pools import pool_history, pools
from tidemill.stores.redis.queues import backlog, counts, history, queues
from tidemill.stores.redis.rows import decode_checkpoint, decode_worker
from tidemill.stores.redis.scripts import load_script
from tidemill.stores.redis.shard import Shard, list_ready_lanes

DETAILS = load_script("details")
_ATTEMPT = msgspec.json.Decoder(AttemptRecord)
_LOG_LINE = msgspec.json.Decoder(LogLine)


class JobDetails(msgspec.Struct, frozen=True):
    attempts: tuple[AttemptRecord, ...]
    logs: tuple[LogLine, ...]
    checkpoints: tuple[Checkpoint, ...]


async def read_details(shard: Shard, jobs: Sequence[str]) -> list[JobDetails]:
    """Returns the attempts, log lines and checkpoints of each job, in the order of `jobs` (R5, R6, K6)."""
    found: list[list[Any]] = []
    while len(found) < len(jobs):
        found += await shard.run(DETAILS, *jobs[len(found) :], repeatable=True)
    return [
        JobDetails(
            tuple(_ATTEMPT.decode(text) for text in attempts),
            tuple(sorted(map(_LOG_LINE.decode, lines), key=lambda line: (line.generation, line.attempt))),
            tuple(decode_checkpoint(text) for text in sorted(steps, key=lambda text: text[:4])),
        )
        for attempts, lines, steps in found
    ]


LANE_DEMAND = load_script("lane_demand")
DEMAND_LANES_PER_REQUEST, DEMAND_IDS_PER_REQUEST = 100, 1000
MAX_POSITION_READS = 10


class PriorityCount(msgspec.Struct, frozen=True):
    """The ready jobs of a lane that have the same priority. `jobs`: the number of jobs. `ids`: the ids of the
    first few jobs."""

    lane: str
    priority: int
    jobs: int
    ids: list[str]


async def ahead(shard: Shard, id_: str) -> int | None:
    """Returns how many ready jobs of the same lane will start before this job, at most 10 000 (R9). Returns
    None if the job is not ready, or changes again and again during the reads."""
    for _ in range(MAX_POSITION_READS):
        (job,) = await get(shard, [id_])
        if job is None or job.state is not State.READY:
            return None
        lane = shard.key(keys.lane(job.queue, job.lane))
        rank = await shard.ask(b"ZRANK", lane, lane_member(job))
        if rank is not None:
            return min(int(rank), MAX_AHEAD_COUNTED)
    return None


async def demand(shard: Shard) -> list[Demand]:
    """Returns how many ready jobs wait for pools, and the average units that one of them needs (R10). There
    is one entry per queue, lane and priority."""
    lanes = {
        queue: [lane for lane in await list_ready_lanes(shard, queue) if LANE_SEPARATOR in lane]
        for queue in sorted(await counts(shard))
    }
    sample = sample_size(sum(map(len, lanes.values())))
    found: list[Demand] = []
    for queue, of_queue in lanes.items():
        async for some in _priority_counts(shard, queue, of_queue, sample):
            ids = [id_ for rank in some for id_ in rank.ids]
            jobs = {job.id: job for job in await get(shard, ids) if job is not None}
            found += [demand for rank in some if (demand := _demand(queue, rank, jobs)) is not None]
    return found


def _demand(queue: str, rank: PriorityCount, jobs: Mapping[str, Job]) -> Demand | None:
    """Returns the number and the average needs of a lane's ready jobs of one priority. Returns None if no job
    of the sample `rank.ids` exists any more."""
    sample = [jobs[id_] for id_ in rank.ids if id_ in jobs]
    if not sample:
        return None
    needs = [combine_needs(job.needs, job.deferred_needs) for job in sample]
    return Demand(
        queue=queue,
        lane=rank.lane,
        priority=rank.priority,
        jobs=rank.jobs,
        needs=average_needs(needs, shares_calls=is_batch_lane(rank.lane)),
        batching=sample[0].batching,
    )


async def _priority_counts(
    shard: Shard, queue: str, lanes: list[str], sample: int
) -> AsyncIterator[list[PriorityCount]]:
    done = 0
    while done < len(lanes):
        names = [keys.lane(queue, lane) for lane in lanes[done : done + DEMAND_LANES_PER_REQUEST]]
        rows = await shard.run(LANE_DEMAND, sample, DEMAND_IDS_PER_REQUEST, *names, repeatable=True)
        yield [
            PriorityCount(lane, int(priority), int(jobs), [id_.decode() for id_ in ids])
            for lane, row in zip(lanes[done : done + len(rows)], rows, strict=True)
            for priority, jobs, ids in zip(row[::3], row[1::3], row[2::3], strict=True)
        ]
        done += len(rows)


WORKERS = load_script("workers")


async def logs(shard: Shard, job: str) -> list[LogLine]:
    """Returns the log lines of a job, the last 200 of each attempt (R5)."""
    return list((await read_details(shard, [job]))[0].logs)


async def attempts(shard: Shard, job: str) -> list[AttemptRecord]:
    """Returns the last 100 attempts of a job that did not succeed (R6)."""
    return list((await read_details(shard, [job]))[0].attempts)


async def checkpoints(shard: Shard, job: str) -> list[Checkpoint]:
    """Returns the checkpoints of a job, in the order in which they first began (K6)."""
    return list((await read_details(shard, [job]))[0].checkpoints)


async def kept_step(shard: Shard, job: str, step: StepKey) -> bytes | None:
    """Returns the stored result of a step; None if no result is stored (K7)."""
    return next(
        (checkpoint.result for checkpoint in await checkpoints(shard, job) if checkpoint.step == step), None
    )


async def workers(shard: Shard) -> list[WorkerInfo]:
    """Returns the workers whose lease has not expired, sorted by id (R7)."""
    rows = await shard.run(WORKERS, repeatable=True)
    found = [
        replace(decode_worker(worker.decode(), text), holds=held)
        for worker, text, held in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
    ]
    return sorted(found, key=lambda worker: worker.id)


__all__ = [
    "ahead",
    "attempts",
    "backlog",
    "checkpoints",
    "counts",
    "demand",
    "find",
    "get",
    "history",
    "kept_step",
    "logs",
    "oldest_first",
    "pool_history",
    "pools",
    "queues",
    "workers",
]


async def list_arrivals(shard: Shard, limit: int, after: int) -> list[Arrival]:
    """Returns up to `limit` arrivals, oldest first. Only arrivals whose sequence number is above `after` are
    returned."""
    if limit <= 0:
        return []
    begin = rows.arrival_entry_id(after + 1)
    found = await shard.ask("XRANGE", shard.key(keys.ARRIVALS), begin, "+", "COUNT", limit)
    return [rows.decode_arrival(name, fields) for name, fields in found]
