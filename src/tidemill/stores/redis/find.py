"""find: the jobs a filter means, a few at a time, so that no search keeps others waiting.

Where the filter means few of all jobs (the counters know), the orders of their states give the places to look
at; else all jobs are walked through in the order they came. What matches is `core.matching.matches`; the
server only keeps most others away.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from tidemill.contract.reader import Page
from tidemill.core.filters import Filter, checked
from tidemill.core.job import Job
from tidemill.core.matching import matches
from tidemill.core.states import FINAL, State
from tidemill.stores.redis import keys
from tidemill.stores.redis.queue_views import counts
from tidemill.stores.redis.records import LETTERS, seq_and_id, unpacked
from tidemill.stores.redis.scanning import fields, members, ready_lanes
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard

GET, WALK = load("get"), load("walk")

AT_ONCE = 200
"""So many records are fetched by one call."""
FEW = 0.25
"""Of all jobs: so many places are collected and sorted as fast as all jobs are walked through."""
FEW_GOING_ON = 0.02
"""The same where a page follows another: the places are collected anew for every page."""

FEW_LANES = 200
"""Each is an order of its own, and a question more."""


async def get(shard: Shard, ids: Sequence[str]) -> list[Job | None]:
    """R1."""
    found: list[Job | None] = []
    while len(found) < len(ids):
        some = ids[len(found) : len(found) + AT_ONCE]
        reply = await shard.run(GET, *some, repeatable=True)
        found += [
            _job(id_, record, lease) if record else None
            for id_, record, lease in zip(some, reply[::2], reply[1::2], strict=False)
        ]
    return found


async def find(
    shard: Shard, wanted: Filter, limit: int, cursor: int | None, looks: int | None = None
) -> Page:
    """R2. The cursor is the place in line of the page's last job; new jobs have a higher one."""
    found: list[Job] = []
    async with aclosing(search(shard, wanted, newest_first=True, behind=cursor, enough=limit + 1)) as jobs:
        async for job in jobs:
            found.append(job)
            if len(found) > limit:
                break
    page = tuple(found[:limit])
    return Page(page, page[-1].seq if page and len(found) > limit else None)


async def oldest_first(shard: Shard, wanted: Filter, limit: int) -> list[str]:
    """Ids of those a change is to be made to, J70."""
    found: list[str] = []
    async with aclosing(search(shard, wanted, newest_first=False, enough=limit)) as jobs:
        async for job in jobs:
            found.append(job.id)
            if len(found) >= limit:
                break
    return found


async def search(
    shard: Shard, wanted: Filter, *, newest_first: bool, behind: int | None = None, enough: int = AT_ONCE
) -> AsyncGenerator[Job]:
    """Every job that the filter means; `enough` is how many are likely to be read."""
    checked(wanted)
    if wanted.ids is not None:
        some: AsyncIterator[Job] = _by_ids(shard, wanted.ids, newest_first=newest_first, behind=behind)
    elif wanted.flow is not None:
        some = _of_flow(shard, wanted.flow, newest_first=newest_first, behind=behind)
    elif (places := await _few(shard, wanted, FEW if behind is None else FEW_GOING_ON)) is not None:
        some = _at(shard, places, newest_first=newest_first, behind=behind)
    else:
        some = _walk(shard, wanted, newest_first=newest_first, behind=behind, enough=min(enough, AT_ONCE))
    async for job in some:
        if matches(wanted, job):
            yield job


async def _by_ids(
    shard: Shard, ids: Sequence[str], *, newest_first: bool, behind: int | None
) -> AsyncIterator[Job]:
    found = [job for job in await get(shard, list(dict.fromkeys(ids))) if job is not None]
    for job in sorted(found, key=lambda job: job.seq, reverse=newest_first):
        if _is_behind(job.seq, behind, newest_first=newest_first):
            yield job


async def _at(
    shard: Shard, places: Sequence[tuple[int, str]], *, newest_first: bool, behind: int | None
) -> AsyncIterator[Job]:
    there = [place for place in places if _is_behind(place[0], behind, newest_first=newest_first)]
    there.sort(reverse=newest_first)
    for start in range(0, len(there), AT_ONCE):
        for job in await get(shard, [id_ for _, id_ in there[start : start + AT_ONCE]]):
            if job is not None:
                yield job


async def _of_flow(shard: Shard, flow: str, *, newest_first: bool, behind: int | None) -> AsyncIterator[Job]:
    command, end = (b"ZREVRANGEBYSCORE", b"-inf") if newest_first else (b"ZRANGEBYSCORE", b"+inf")
    place = (b"+inf" if newest_first else b"-inf") if behind is None else f"({behind}"
    while True:
        some = await shard.ask(command, shard.key(keys.parts(flow)), place, end, b"LIMIT", 0, AT_ONCE)
        there = [seq_and_id(member) for member in some]
        for job in await get(shard, [id_ for _, id_ in there]):
            if job is not None:
                yield job
        if len(there) < AT_ONCE:
            return
        place = f"({there[-1][0]}"


async def _walk(
    shard: Shard, wanted: Filter, *, newest_first: bool, behind: int | None, enough: int
) -> AsyncIterator[Job]:
    letters = b"" if wanted.states is None else b"".join(LETTERS[State(state)] for state in wanted.states)
    place: bytes | str = "" if behind is None else str(behind)
    order = "newest" if newest_first else "oldest"
    prefix = wanted.id_prefix or ""
    if wanted.states is not None and not letters:
        return
    while True:
        place, *found = await shard.run(
            WALK, order, place, letters, wanted.queue or "", prefix, enough, repeatable=True
        )
        for id_, record, lease in zip(found[::3], found[1::3], found[2::3], strict=True):
            yield _job(id_.decode(), record, lease)
        if not place:
            return


async def _few(shard: Shard, wanted: Filter, share: float) -> list[tuple[int, str]] | None:
    """Places and ids of the jobs in the states that are meant, where they are few; None where all are to be
    walked through. Only jobs that move from one order on to one that is read later can be told apart
    safely: so at most one of the states is one that is left again."""
    states = frozenset(State if wanted.states is None else wanted.states)
    if wanted.time == "finished" and (wanted.since is not None or wanted.until is not None):
        states &= FINAL
    known = await counts(shard)
    total = sum(sum(of_queue.values()) for of_queue in known.values())
    meant = [name for name in known if wanted.queue in (None, name)]
    jobs = sum(known[name].get(state, 0) for name in meant for state in states)
    if not jobs:
        return []
    if jobs > share * total or len(states - FINAL) > 1 or State.WAITING in states:
        return None
    if State.READY in states and await _lanes(shard, meant) > FEW_LANES:
        return None
    found: dict[bytes, None] = {}
    for state in sorted(states, key=lambda state: state in FINAL):
        for name in meant:
            found |= dict.fromkeys(await _members(shard, name, state))
    return [seq_and_id(member) for member in found]


async def _lanes(shard: Shard, queues: Sequence[str]) -> int:
    return sum([int(await shard.ask(b"HLEN", shard.key(keys.lanes(queue)))) for queue in queues])


async def _members(shard: Shard, queue: str, state: State) -> list[bytes]:
    if state is State.READY:
        lanes = await ready_lanes(shard, queue)
        return [member[8:] for lane in lanes for member in await members(shard, keys.lane(queue, lane))]
    if state is State.SCHEDULED:
        return await members(shard, keys.scheduled(queue))
    if state is State.RUNNING:
        return list({name: None async for name, _ in fields(shard, keys.running(queue))})
    of_flows = await members(shard, keys.ended_parts(queue, state))
    return [*await members(shard, keys.ended(queue, state)), *of_flows]


def _is_behind(seq: int, place: int | None, *, newest_first: bool) -> bool:
    return place is None or (seq < place if newest_first else seq > place)


def _job(id_: str, record: bytes, lease: bytes) -> Job:
    return unpacked(id_, record, float(lease) if lease else None)
