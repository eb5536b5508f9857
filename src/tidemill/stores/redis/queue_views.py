"""Queues as people see them: settings, counts, minutes, what waits."""

from __future__ import annotations

from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import Backlog, Minute
from tidemill.core.queues import in_force
from tidemill.core.states import State
from tidemill.engine.wants import QueueRow
from tidemill.stores.redis import keys
from tidemill.stores.redis.rows import queue_of
from tidemill.stores.redis.scanning import fields, ready_lanes
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard

QUEUES, BACKLOG, OLDEST, HISTORY = load("queues"), load("backlog"), load("oldest_ready"), load("history")

LANES_AT_ONCE = 300
FEW_MINUTES = 3000
"""Each is asked for by its name."""
_COUNTED = ("done", "failed", "cancelled", "retried", "reclaimed", "dropped_early")


async def queues(shard: Shard) -> list[QueueInfo]:
    """Q5."""
    wall, *rows = await shard.run(QUEUES, repeatable=True)
    found = {name.decode(): queue_of(text) for name, text in zip(rows[::2], rows[1::2], strict=True)}
    return [_info(name, found[name], float(wall)) for name in sorted(found)]


def _info(name: str, row: QueueRow, wall: float) -> QueueInfo:
    held = row.override is not None and row.override.holds(wall)
    return QueueInfo(
        name=name,
        declared=row.declared,
        override=row.override if held else None,
        settings=in_force(row.declared, row.override, wall),
        pause=row.pause,
    )


async def counts(shard: Shard) -> dict[str, dict[State, int]]:
    """R3. Only what there is."""
    found: dict[str, dict[State, int]] = {}
    rows = await shard.ask(b"HGETALL", shard.key(keys.COUNTS))
    for field, count in zip(rows[::2], rows[1::2], strict=True):
        state, _, queue = field.decode().partition(":")
        if state != "retrying" and int(count):
            found.setdefault(queue, {})[State(state)] = int(count)
    return found


async def history(shard: Shard, queue: str, since: float) -> list[Minute]:
    """R4. A few days are asked for by their minutes; of weeks the whole hash is read."""
    first = int(since // 60 * 60)
    told = await shard.run(HISTORY, keys.history(queue), first, FEW_MINUTES, *_COUNTED, repeatable=True)
    if told != b"?":
        lines = [list(map(int, line.split())) for line in told.splitlines()]
        return [Minute(float(at), *counted) for at, *counted in lines]
    minutes: dict[float, dict[str, int]] = {}
    async for field, count in fields(shard, keys.history(queue)):
        at, _, what = field.decode().partition(":")
        if float(at) >= first:
            minutes.setdefault(float(at), {})[what] = int(count)
    return [
        Minute(at, *(counted.get(what, 0) for what in _COUNTED)) for at, counted in sorted(minutes.items())
    ]


async def backlog(shard: Shard, queue: str) -> Backlog:
    """R8."""
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
    lanes = [keys.lane(queue, lane) for lane in await ready_lanes(shard, queue)]
    found: list[float] = []
    for start in range(0, len(lanes), LANES_AT_ONCE):
        due = await shard.run(OLDEST, *lanes[start : start + LANES_AT_ONCE], repeatable=True)
        found += [float(due)] if due else []
    return min(found, default=None)
