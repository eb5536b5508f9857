"""find: the jobs a filter means, a few at a time, so that no search keeps others waiting.

Where the filter means few of all jobs (the counters know), the orders of their states give the places to look
at; else all jobs are walked through in the order they came. What matches is `core.matching.matches`; the
server only keeps most others away (`sieve.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from tidemill.contract.reader import Page
from tidemill.core.filters import Filter, checked
from tidemill.core.job import Job
from tidemill.core.matching import matches
from tidemill.stores.redis import keys
from tidemill.stores.redis.few import few
from tidemill.stores.redis.records import seq_and_id, unpacked
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard
from tidemill.stores.redis.sieve import sieve

GET, WALK, SIFT = load("get"), load("walk"), load("sift")

AT_ONCE = 200
"""So many records are fetched by one call."""
SIFTED_AT_ONCE = 900
"""So many are looked at by one call, where few of them are likely to be meant."""
NEWEST = 1000
"""Before any places are collected so many of the newest jobs are looked at: often they fill the page."""


class Piece(NamedTuple):
    """Jobs that may be meant, of so many that were looked at; `last` is the place of the last of these, None
    when there are no more."""

    jobs: list[Job]
    looked: int
    last: int | None


class Search(NamedTuple):
    wanted: Filter
    newest_first: bool
    behind: int | None
    enough: int
    """How many are likely to be read."""
    looks: int | None

    def is_behind(self, seq: int) -> bool:
        return self.behind is None or (seq < self.behind if self.newest_first else seq > self.behind)


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


async def find(shard: Shard, wanted: Filter, limit: int, cursor: int | None, looks: int | None) -> Page:
    """R2, R11. The cursor is the place in line of the last job that counts; new jobs have a higher one."""
    asked = Search(checked(wanted), newest_first=True, behind=cursor, enough=limit + 1, looks=looks)
    if looks is not None and wanted.flow is None and not _looks_closer(wanted):
        page = await _page(_walk(shard, asked._replace(looks=NEWEST)), asked._replace(looks=NEWEST), limit)
        if not page.partial:
            return page
    return await _page(_pieces(shard, asked), asked, limit)


async def _page(pieces: AsyncGenerator[Piece], asked: Search, limit: int) -> Page:
    found: list[Job] = []
    looked = 0
    async with aclosing(pieces):
        async for piece in pieces:
            looked += piece.looked
            for job in piece.jobs:
                if not matches(asked.wanted, job):
                    continue
                if len(found) == limit:
                    return Page(tuple(found), found[-1].seq if found else None)
                found.append(job)
            if piece.last is not None and asked.looks is not None and looked >= asked.looks:
                return Page(tuple(found), piece.last, partial=len(found) < limit)
    return Page(tuple(found), None)


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
    asked = Search(checked(wanted), newest_first, behind, enough, looks=None)
    async with aclosing(_pieces(shard, asked)) as pieces:
        async for piece in pieces:
            for job in piece.jobs:
                if matches(wanted, job):
                    yield job


async def _pieces(shard: Shard, asked: Search) -> AsyncGenerator[Piece]:
    wanted = asked.wanted
    if wanted.states is not None and not wanted.states:
        return
    if wanted.ids is not None:
        yield Piece(await _named(shard, wanted.ids, asked), 0, None)
        return
    if wanted.flow is not None:
        pieces = _of_flow(shard, wanted.flow, asked)
    elif (places := await few(shard, wanted, asked.behind, bounded=asked.looks is not None)) is not None:
        pieces = _at(shard, places, asked)
    else:
        pieces = _walk(shard, asked)
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece


async def _named(shard: Shard, ids: Sequence[str], asked: Search) -> list[Job]:
    found = [job for job in await get(shard, list(dict.fromkeys(ids))) if job is not None]
    found.sort(key=lambda job: job.seq, reverse=asked.newest_first)
    return [job for job in found if asked.is_behind(job.seq)]


async def _at(shard: Shard, members: Sequence[bytes], asked: Search) -> AsyncGenerator[Piece]:
    """Members begin with the place. Where only an order was asked for, all are likely to be meant."""
    there = sorted(members, reverse=asked.newest_first)
    if asked.behind is not None:
        there = [member for member in there if asked.is_behind(int.from_bytes(member[:6]))]
    at_once = SIFTED_AT_ONCE if _looks_closer(asked.wanted) else min(asked.enough, AT_ONCE)
    wanted, done = sieve(asked.wanted), 0
    while done < len(there):
        most = at_once if asked.looks is None else max(1, min(at_once, asked.looks - done))
        some = [seq_and_id(member)[1] for member in there[done : done + most]]
        looked, *found = await shard.run(SIFT, len(some), *some, *wanted, repeatable=True)
        done += int(looked)
        last = seq_and_id(there[done - 1])[0] if done < len(there) else None
        yield Piece(_jobs(found), int(looked), last)


async def _of_flow(shard: Shard, flow: str, asked: Search) -> AsyncGenerator[Piece]:
    newest_first, behind = asked.newest_first, asked.behind
    command, end = (b"ZREVRANGEBYSCORE", b"-inf") if newest_first else (b"ZRANGEBYSCORE", b"+inf")
    place = (b"+inf" if newest_first else b"-inf") if behind is None else f"({behind}"
    left = asked.looks
    while True:
        most = AT_ONCE if left is None else max(1, min(AT_ONCE, left))
        some = await shard.ask(command, shard.key(keys.parts(flow)), place, end, b"LIMIT", 0, most + 1)
        there = [seq_and_id(member) for member in some[:most]]
        jobs = [job for job in await get(shard, [id_ for _, id_ in there]) if job is not None]
        yield Piece(jobs, len(there), there[-1][0] if len(some) > most else None)
        if len(some) <= most:
            return
        place = f"({there[-1][0]}"
        left = None if left is None else left - len(there)


async def _walk(shard: Shard, asked: Search) -> AsyncGenerator[Piece]:
    place: bytes | str = "" if asked.behind is None else str(asked.behind)
    order = "newest" if asked.newest_first else "oldest"
    prefix, enough = asked.wanted.id_prefix or "", min(asked.enough, AT_ONCE)
    wanted, left = sieve(asked.wanted), asked.looks
    while True:
        most = SIFTED_AT_ONCE if left is None else max(1, min(SIFTED_AT_ONCE, left))
        reply = await shard.run(WALK, order, place, prefix, enough, most, *wanted, repeatable=True)
        place, looked, *found = reply
        yield Piece(_jobs(found), int(looked), int(place) if place else None)
        if not place:
            return
        left = None if left is None else left - int(looked)


def _jobs(found: Sequence[bytes]) -> list[Job]:
    return [
        _job(id_.decode(), record, lease)
        for id_, record, lease in zip(found[::3], found[1::3], found[2::3], strict=True)
    ]


def _looks_closer(wanted: Filter) -> bool:
    """Whether what is meant takes more than an order to tell."""
    return wanted != Filter(queue=wanted.queue, states=wanted.states, flow=wanted.flow)


def _job(id_: str, record: bytes, lease: bytes) -> Job:
    return unpacked(id_, record, float(lease) if lease else None)
