"""What stands in line: who is ahead of a job, and what all of them ask of pools."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tidemill.contract.reader import AHEAD_COUNTED
from tidemill.core.demand import SAMPLED, Demand, averaged
from tidemill.core.needs import SEPARATOR, is_of_batches, together
from tidemill.core.states import State
from tidemill.stores.redis import keys
from tidemill.stores.redis.find import get
from tidemill.stores.redis.queue_views import counts
from tidemill.stores.redis.records import in_lane
from tidemill.stores.redis.scanning import ready_lanes
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard

LANES = load("lanes")
LANES_AT_ONCE, IDS_AT_ONCE = 500, 5000
LOOKS = 10


async def ahead(shard: Shard, id_: str) -> int | None:
    """R9. One that moves between two looks is looked at again; if it never rests it is not ready."""
    for _ in range(LOOKS):
        (job,) = await get(shard, [id_])
        if job is None or job.state is not State.READY:
            return None
        lane = shard.key(keys.lane(job.queue, job.lane))
        place = await shard.ask(b"ZRANK", lane, in_lane(job))
        if place is not None:
            return min(int(place), AHEAD_COUNTED)
    return None


async def demand(shard: Shard) -> list[Demand]:
    """R10."""
    found: list[Demand] = []
    for queue in sorted(await counts(shard)):
        lanes = [lane for lane in await ready_lanes(shard, queue) if SEPARATOR in lane]
        async for lane, priority, jobs, ids in _priorities(shard, queue, lanes):
            sample = [job for job in await get(shard, ids) if job is not None]
            if not sample:
                continue
            needs = [together(job.needs, job.extra) for job in sample]
            found.append(
                Demand(
                    queue=queue,
                    lane=lane,
                    priority=priority,
                    jobs=jobs,
                    needs=averaged(needs, shares_calls=is_of_batches(lane)),
                    batching=sample[0].batching,
                )
            )
    return found


async def _priorities(
    shard: Shard, queue: str, lanes: list[str]
) -> AsyncIterator[tuple[str, int, int, list[str]]]:
    """(lane, priority, jobs, ids of the first)"""
    done = 0
    while done < len(lanes):
        names = [keys.lane(queue, lane) for lane in lanes[done : done + LANES_AT_ONCE]]
        for row in await shard.run(LANES, SAMPLED, IDS_AT_ONCE, *names, repeatable=True):
            for priority, jobs, ids in zip(row[::3], row[1::3], row[2::3], strict=True):
                yield lanes[done], int(priority), int(jobs), [id_.decode() for id_ in ids]
            done += 1
