"""Everything there is, out of this shard and into it."""

from __future__ import annotations

from contextlib import aclosing

from tidemill.contract.copying import Copies, IdCopy, IdPage, JobCopy, checked
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.engine import copying as engine
from tidemill.engine import plans
from tidemill.stores.redis import keys
from tidemill.stores.redis.details import details
from tidemill.stores.redis.find import search
from tidemill.stores.redis.rows import remembered_of
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard
from tidemill.stores.redis.slow import Slow
from tidemill.stores.redis.wire import Argument

COPIED = load("copied")
IDS_AT_ONCE = 1000


async def copy_jobs(shard: Shard, after: int, limit: int) -> list[JobCopy]:
    """U5."""
    jobs: list[Job] = []
    async with aclosing(search(shard, Filter(), newest_first=False, behind=after, enough=limit)) as found:
        async for job in found:
            jobs.append(job)
            if len(jobs) == limit:
                break
    kept = await details(shard, [job.id for job in jobs])
    return [
        JobCopy(job=job, attempts=its.attempts, logs=its.logs, checkpoints=its.checkpoints)
        for job, its in zip(jobs, kept, strict=True)
    ]


async def copy_ids(shard: Shard, cursor: str) -> IdPage:
    """U6. The cursor is the server's own."""
    wall, boot = await shard.read_clock()
    after, found = await shard.ask(b"HSCAN", shard.key(keys.REMEMBERED), cursor or "0", b"COUNT", IDS_AT_ONCE)
    known = {
        name.decode(): remembered_of(name.decode(), text)
        for name, text in zip(found[::2], found[1::2], strict=True)
    }
    ids = tuple(
        IdCopy(request=request, verdict=told.verdict, job=told.id, fence=told.fence, claim=told.claim)
        for request, told in known.items()
        if told.term.wall > wall or told.term.boot > boot
    )
    return IdPage(ids, None if after == b"0" else after.decode())


async def copy_in(slow: Slow, copies: Copies) -> None:
    """U7."""
    checked(copies)
    if copies.jobs or copies.ids or copies.queues or copies.pools or copies.courses:
        await slow.run(plans.copy_in(copies), lambda records: engine.copy_in(records, copies))
    words: list[Argument] = [copies.fence]
    for arrival in copies.arrivals:
        words += (int(arrival.arrived * 1000), arrival.id, arrival.task, arrival.payload, arrival.options)
    await slow.shard.run(COPIED, *words)
