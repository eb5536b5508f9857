"""U2 for flows and schedules: they are listed as they are, and what has stirred them is found."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from tidemill.core.courses import Kind
from tidemill.stores.redis import keys
from tidemill.stores.redis.agreeing import Kept, failed
from tidemill.stores.redis.course_writes import places
from tidemill.stores.redis.filing import Filed
from tidemill.stores.redis.rows import course_of
from tidemill.stores.redis.scanning import fields, members
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard

RECOUNT, UNTOLD = load("recount_courses"), load("untold")
AT_ONCE = 100


async def check_courses(shard: Shard) -> AsyncIterator[str]:
    for kind in Kind:
        async for sentence in _records(shard, kind):
            yield sentence
        async for sentence in _strays(shard, kind):
            yield sentence
        rows = await shard.run(RECOUNT, kind.value, repeatable=True)
        for what, says, has in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
            if says != has:
                yield f"{kind}s: {says} are counted {what.decode()}, but there are {has}"
    async for sentence in _stirs(shard):
        yield sentence


async def _records(shard: Shard, kind: Kind) -> AsyncIterator[str]:
    """Each is found wherever its record says."""
    known = [id_ async for id_, _ in fields(shard, keys.courses(kind))]
    for start in range(0, len(known), AT_ONCE):
        some = await _kept(shard, kind, known[start : start + AT_ONCE])
        wanted = [(kept, _filed(kind, kept)) for kept in some]
        for (id_, _), at in await failed(shard, keys.courses(kind), wanted):
            yield f"{kind} {id_!r} is not found in {at.key!r}, as its record says"


async def _strays(shard: Shard, kind: Kind) -> AsyncIterator[str]:
    """Nothing is listed, or due, whose record says otherwise."""
    for name in (keys.listed(kind, "", ""), keys.dues(kind), keys.OUTLIVED):
        found = await members(shard, name)
        ids = [id_of for member in found if (id_of := _id_of(kind, name, member)) is not None]
        for start in range(0, len(ids), AT_ONCE):
            some = await _kept(shard, kind, ids[start : start + AT_ONCE])
            doubtful = [
                (kept, [Filed("absent", name, _member_of(kind, name, kept[0]))])
                for kept in some
                if name not in {place.key for place in _filed(kind, kept)}
            ]
            for (id_, _), at in await failed(shard, keys.courses(kind), doubtful):
                yield f"{at.key!r} lists the {kind} {id_!r}, whose record says otherwise"


async def _stirs(shard: Shard) -> AsyncIterator[str]:
    numbers = [number async for number, _ in fields(shard, keys.STIRS)]
    for start in range(0, len(numbers), AT_ONCE):
        some = numbers[start : start + AT_ONCE]
        for text in await shard.run(UNTOLD, *some, repeatable=True):
            yield f"an end is kept of {text.decode()!r} that is on no agenda"


async def _kept(shard: Shard, kind: Kind, ids: Sequence[bytes]) -> list[Kept]:
    rows = await shard.ask(b"HMGET", shard.key(keys.courses(kind)), *ids)
    return [(id_.decode(), row or b"") for id_, row in zip(ids, rows, strict=True)]


def _filed(kind: Kind, kept: Kept) -> list[Filed]:
    id_, row = kept
    if not row:
        return []
    course = course_of(kind, id_, row)
    return [Filed("order", key, member, repr(score)) for key, score, member in places(course)]


def _id_of(kind: Kind, name: str, member: bytes) -> bytes | None:
    """None of a member that is of another kind."""
    if name != keys.OUTLIVED:
        return member
    prefix = f"{kind}:".encode()
    return member.removeprefix(prefix) if member.startswith(prefix) else None


def _member_of(kind: Kind, name: str, id_: str) -> str:
    return keys.course(kind, id_) if name == keys.OUTLIVED else id_
