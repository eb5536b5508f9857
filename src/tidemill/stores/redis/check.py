"""U2: recounting everything against the records, a few at a time, while jobs go on.

What is read in pieces is never of one instant. So whatever looks wrong is looked at again in one step, and
counts only if the job is still what it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from tidemill.core.states import FINAL
from tidemill.stores.redis import keys
from tidemill.stores.redis.agreeing import Kept, failed
from tidemill.stores.redis.check_courses import check_courses
from tidemill.stores.redis.check_pools import check_pools
from tidemill.stores.redis.filing import Filed, filed
from tidemill.stores.redis.records import seq_and_id, unpacked
from tidemill.stores.redis.scanning import ready_lanes
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard

GET, RECOUNT = map(load, ("get", "recount"))
AT_ONCE = 200
RECORDS_AT_ONCE = 50
_DETAILS = ("attempts:", "logs:", "steps:")


async def check(shard: Shard) -> tuple[str, ...]:
    queues = sorted(name.decode() for name in await shard.ask(b"HKEYS", shard.key(keys.QUEUES)))
    found = [sentence async for sentence in _records(shard)]
    for queue in queues:
        async for name in _orders(shard, queue):
            found += [sentence async for sentence in _strays(shard, name)]
    found += [sentence async for sentence in _strays(shard, keys.EXPIRING)]
    found += await _counts(shard, queues)
    found += [sentence async for sentence in check_pools(shard)]
    found += [sentence async for sentence in check_courses(shard)]
    found += [sentence async for sentence in _orphans(shard)]
    return tuple(found)


async def _records(shard: Shard) -> AsyncIterator[str]:
    """Every job is filed where its record says. Records may be long: few are fetched at once."""
    cursor = b"0"
    while True:
        cursor, some = await shard.ask(b"HSCAN", shard.key(keys.JOBS), cursor, b"COUNT", RECORDS_AT_ONCE)
        jobs = [(id_.decode(), record) for id_, record in zip(some[::2], some[1::2], strict=True)]
        wanted = [(job, list(filed(unpacked(*job)))) for job in jobs]
        for (id_, record), at in await failed(shard, keys.JOBS, wanted):
            state = unpacked(id_, record).state
            yield f"job {id_!r} is {state} but is not found as such in {at.key!r}"
        if cursor == b"0":
            return


async def _orders(shard: Shard, queue: str) -> AsyncIterator[str]:
    yield keys.scheduled(queue)
    yield keys.running(queue)
    for state in sorted(FINAL):
        yield keys.ended(queue, state)
        yield keys.ended_parts(queue, state)
    for lane in await ready_lanes(shard, queue):
        yield keys.lane(queue, lane)


async def _strays(shard: Shard, name: str) -> AsyncIterator[str]:
    """Nothing is filed in an order whose record says otherwise."""
    skipped = 8 if name.startswith(("ready:", "lane:")) else 0
    cursor = b"0"
    while True:
        scan = b"HSCAN" if name.startswith("running:") else b"ZSCAN"
        cursor, found = await shard.ask(scan, shard.key(name), cursor, b"COUNT", AT_ONCE)
        members = {seq_and_id(member[skipped:])[1]: member for member in found[::2]}
        doubtful = [
            (kept, [Filed("absent", name, members[kept[0]])])
            for kept in await _kept(shard, list(members))
            if not _is_filed(kept, name, members[kept[0]])
        ]
        for (id_, record), _ in await failed(shard, keys.JOBS, doubtful):
            what = f"is {unpacked(id_, record).state}" if record else "does not exist"
            yield f"{name!r} lists the job {id_!r}, which {what}"
        if cursor == b"0":
            return


def _is_filed(kept: Kept, name: str, member: bytes) -> bool:
    id_, record = kept
    return bool(record) and any(
        (place.key, place.member) == (name, member) for place in filed(unpacked(id_, record))
    )


async def _kept(shard: Shard, ids: Sequence[str]) -> list[Kept]:
    reply = await shard.run(GET, *ids, repeatable=True) if ids else []
    return list(zip(ids, reply[::2], strict=True))


async def _counts(shard: Shard, queues: Sequence[str]) -> list[str]:
    found: list[str] = []
    for queue in queues:
        rows = await shard.run(RECOUNT, queue, repeatable=True)
        for what, says, has in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
            if says != has:
                found.append(f"queue {queue!r} counts {says} {what.decode()} but has {has}")
    _, says, has = await shard.run(RECOUNT, "", repeatable=True)
    return [*found, f"all queues together count {says} jobs but there are {has}"] if says != has else found


async def _orphans(shard: Shard) -> AsyncIterator[str]:
    """Nothing is kept of jobs that are gone."""
    cursor = b"0"
    pattern = _literally(shard.root) + "*"
    while True:
        cursor, found = await shard.ask(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", 1000)
        names = [name.decode().removeprefix(shard.root) for name in found]
        jobs = {name: job for name in names if (job := _job_of(name))}
        kept = dict(await _kept(shard, sorted(set(jobs.values()))))
        doubtful = [((job, b""), [Filed("gone", name, "")]) for name, job in jobs.items() if not kept[job]]
        for (id_, _), at in await failed(shard, keys.JOBS, doubtful):
            yield f"{at.key!r} is kept of the job {id_!r}, which is gone"
        if cursor == b"0":
            return


def _job_of(name: str) -> str:
    return next((name.removeprefix(kind) for kind in _DETAILS if name.startswith(kind)), "")


def _literally(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "*?[]^\\-" else letter for letter in text)
