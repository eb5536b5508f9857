"""Reading: never needed for running a job, never in the way of one.

What grows without bounds (jobs, lanes, accounts, minutes) is read in pieces, each of which keeps the server
for a few milliseconds at most.
"""

from __future__ import annotations

from msgspec.structs import replace

from tidemill.contract.reader import AttemptRecord, LogLine, WorkerInfo
from tidemill.core.checkpoints import Checkpoint, Step
from tidemill.stores.redis.details import details
from tidemill.stores.redis.find import find, get, oldest_first
from tidemill.stores.redis.lane_views import ahead, demand
from tidemill.stores.redis.pool_views import pool_history, pools
from tidemill.stores.redis.queue_views import backlog, counts, history, queues
from tidemill.stores.redis.rows import worker_of
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard

WORKERS = load("workers")

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


async def logs(shard: Shard, job: str) -> list[LogLine]:
    """R5."""
    return list((await details(shard, [job]))[0].logs)


async def attempts(shard: Shard, job: str) -> list[AttemptRecord]:
    """R6."""
    return list((await details(shard, [job]))[0].attempts)


async def checkpoints(shard: Shard, job: str) -> list[Checkpoint]:
    """K6."""
    return list((await details(shard, [job]))[0].checkpoints)


async def kept_step(shard: Shard, job: str, step: Step) -> bytes | None:
    """K7."""
    return next((kept.result for kept in await checkpoints(shard, job) if kept.step == step), None)


async def workers(shard: Shard) -> list[WorkerInfo]:
    """R7, by id."""
    rows = await shard.run(WORKERS, repeatable=True)
    found = [
        replace(worker_of(worker.decode(), text), holds=held)
        for worker, text, held in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
    ]
    return sorted(found, key=lambda worker: worker.id)
