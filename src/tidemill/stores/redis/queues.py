"""Reads queues: their settings, counts, history by minute, and backlog."""

from __future__ import annotations

from tidemill.contract.queues import QueueInfo, make_queue_info
from tidemill.contract.reader import Backlog, QueueMinute
from tidemill.core.states import State
from tidemill.stores.redis import keys
from tidemill.stores.redis.rows import decode_queue
from tidemill.stores.redis.scripts import load_script
from tidemill.stores.redis.shard import Shard, list_ready_lanes, scan_hash

QUEUES, BACKLOG, OLDEST_READY, HISTORY = (
    load_script("queues"),
    load_script("backlog"),
    load_script("oldest_ready"),
    load_script("history"),
)

LANES_PER_REQUEST = 300
MAX_MINUTES_BY_NAME = 3000
"""Minutes that a history request reads by name; for more, the whole hash is read."""
_COUNTED = ("done", "failed", "cancelled", "retried", "reclaimed", "dropped_early")


async def queues(shard: Shard) -> list[QueueInfo]:
    """Returns all queues with their settings, override and pause, sorted by name (Q5)."""
    wall, *rows = await shard.run(QUEUES, repeatable=True)
    found = {name.decode(): decode_queue(text) for name, text in zip(rows[::2], rows[1::2], strict=True)}
    return [
        make_queue_info(name, row.declared, row.override, row.pause, float(wall))
        for name, row in sorted(found.items())
    ]


async def counts(shard: Shard) -> dict[str, dict[State, int]]:
    """Returns the number of jobs by queue and state (R3). States without jobs are left out."""
    found: dict[str, dict[State, int]] = {}
    rows = await shard.ask(b"HGETALL", shard.key(keys.COUNTS))
    for field, count in zip(rows[::2], rows[1::2], strict=True):
        state, _, queue = field.decode().partition(":")
        if state != "retrying" and int(count):
            found.setdefault(queue, {})[State(state)] = int(count)
    return found


async def history(shard: Shard, queue: str, since: float) -> list[QueueMinute]:
    """Returns the history of a queue by minute, oldest first (R4). The first minute contains `since` (wall
    time)."""
    first = int(since // 60 * 60)
    reply = await shard.run(
        HISTORY, keys.history(queue), first, MAX_MINUTES_BY_NAME, *_COUNTED, repeatable=True
    )
    if reply != b"?":
        lines = [list(map(int, line.split())) for line in reply.splitlines()]
        return [QueueMinute(float(at), *counted) for at, *counted in lines]
    minutes: dict[float, dict[str, int]] = {}
    async for field, count in scan_hash(shard, keys.history(queue)):
        at, _, what = field.decode().partition(":")
        if float(at) >= first:
            minutes.setdefault(float(at), {})[what] = int(count)
    return [
        QueueMinute(at, *(counted.get(what, 0) for what in _COUNTED))
        for at, counted in sorted(minutes.items())
    ]


async def backlog(shard: Shard, queue: str) -> Backlog:
    """Returns the backlog of a queue (R8): since when its oldest ready job waits, when the next job is due,
    how many jobs wait for a retry, and when a job last ended."""
    next_due, retrying, ended, minute = await shard.run(BACKLOG, queue, repeatable=True)
    last = [float(at) for at in (ended, minute) if at not in (b"", b"?")]
    if minute == b"?":
        last += [of.at for of in await history(shard, queue, 0.0) if of.done + of.failed + of.cancelled]
    return Backlog(
        oldest_ready=await _oldest_ready(shard, queue),
        next_due=float(next_due) if next_due else None,
        retrying=int(retrying or 0),
        last_ended=max(last, default=None),
    )


async def _oldest_ready(shard: Shard, queue: str) -> float | None:
    lanes = [keys.lane(queue, lane) for lane in await list_ready_lanes(shard, queue)]
    found: list[float] = []
    for start in range(0, len(lanes), LANES_PER_REQUEST):
        due = await shard.run(OLDEST_READY, *lanes[start : start + LANES_PER_REQUEST], repeatable=True)
        found += [float(due)] if due else []
    return min(found, default=None)
