"""Reading: never needed for running a job, never in the way of one.

What grows without bounds (jobs, lanes, accounts, minutes) is read in pieces, each of which keeps the server
for a few milliseconds at most.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tidemill.contract.reader import AttemptRecord, LogLine, WorkerInfo
from tidemill.stores.redis import keys
from tidemill.stores.redis.find import find, get, oldest_first
from tidemill.stores.redis.lane_views import ahead, demand
from tidemill.stores.redis.pool_views import pool_history, pools
from tidemill.stores.redis.queue_views import backlog, counts, history, queues
from tidemill.stores.redis.rows import worker_of
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard

LOGS, WORKERS = load("logs"), load("workers")
_ATTEMPT = msgspec.json.Decoder(AttemptRecord)
_LINE = msgspec.json.Decoder(LogLine)

__all__ = [
    "ahead",
    "attempts",
    "backlog",
    "counts",
    "demand",
    "find",
    "get",
    "history",
    "logs",
    "oldest_first",
    "pool_history",
    "pools",
    "queues",
    "workers",
]


async def logs(shard: Shard, job: str) -> list[LogLine]:
    """R5."""
    lines = [_LINE.decode(text) for text in await shard.run(LOGS, job, repeatable=True)]
    return sorted(lines, key=lambda line: (line.generation, line.attempt))


async def attempts(shard: Shard, job: str) -> list[AttemptRecord]:
    """R6."""
    kept = await shard.ask(b"LRANGE", shard.key(keys.attempts(job)), 0, -1)
    return [_ATTEMPT.decode(text) for text in kept]


async def workers(shard: Shard) -> list[WorkerInfo]:
    """R7, by id."""
    rows = await shard.run(WORKERS, repeatable=True)
    found = [
        replace(worker_of(worker.decode(), text), holds=held)
        for worker, text, held in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
    ]
    return sorted(found, key=lambda worker: worker.id)
