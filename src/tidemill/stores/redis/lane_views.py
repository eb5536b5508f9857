"""What stands in line: who is ahead of a job, and what all of them ask of pools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec

from tidemill.contract.reader import AHEAD_COUNTED
from tidemill.core.demand import Demand, averaged, sampled
from tidemill.core.job import Job
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
LANES_AT_ONCE, IDS_AT_ONCE = 100, 1000
LOOKS = 10


class Rank(msgspec.Struct, frozen=True):
    """The ready jobs of a lane with one priority: how many, and the first of them."""

    lane: str
    priority: int
    jobs: int
    ids: list[str]


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
    lanes = {
        queue: [lane for lane in await ready_lanes(shard, queue) if SEPARATOR in lane]
        for queue in sorted(await counts(shard))
    }
    sample = sampled(sum(map(len, lanes.values())))
    found: list[Demand] = []
    for queue, of_queue in lanes.items():
        async for some in _ranks(shard, queue, of_queue, sample):
            ids = [id_ for rank in some for id_ in rank.ids]
            jobs = {job.id: job for job in await get(shard, ids) if job is not None}
            found += [demand for rank in some if (demand := _demand(queue, rank, jobs)) is not None]
    return found


def _demand(queue: str, rank: Rank, jobs: Mapping[str, Job]) -> Demand | None:
    """None where all of them have gone since they were counted."""
    sample = [jobs[id_] for id_ in rank.ids if id_ in jobs]
    if not sample:
        return None
    needs = [together(job.needs, job.extra) for job in sample]
    return Demand(
        queue=queue,
        lane=rank.lane,
        priority=rank.priority,
        jobs=rank.jobs,
        needs=averaged(needs, shares_calls=is_of_batches(rank.lane)),
        batching=sample[0].batching,
    )


async def _ranks(shard: Shard, queue: str, lanes: list[str], sample: int) -> AsyncIterator[list[Rank]]:
    done = 0
    while done < len(lanes):
        names = [keys.lane(queue, lane) for lane in lanes[done : done + LANES_AT_ONCE]]
        rows = await shard.run(LANES, sample, IDS_AT_ONCE, *names, repeatable=True)
        yield [
            Rank(lane, int(priority), int(jobs), [id_.decode() for id_ in ids])
            for lane, row in zip(lanes[done : done + len(rows)], rows, strict=True)
            for priority, jobs, ids in zip(row[::3], row[1::3], row[2::3], strict=True)
        ]
        done += len(rows)
