"""Requests from outside lie in a stream: one XADD by anybody, in any language."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.contract.jobs import Arrival
from tidemill.stores.redis.keys import ARRIVALS
from tidemill.stores.redis.shard import Shard

_BITS = 20
"""A stream's ids are a millisecond and a number within it; more than a million in one never come."""


async def arrivals(shard: Shard, limit: int, after: int) -> list[Arrival]:
    if limit <= 0:
        return []
    begin = name_of(after + 1)
    found = await shard.ask("XRANGE", shard.key(ARRIVALS), begin, "+", "COUNT", limit)
    return [arrival_of(name, fields) for name, fields in found]


def arrival_of(name: bytes, fields: Sequence[bytes]) -> Arrival:
    """What is not there is empty: who admits it says which field is missing."""
    given = dict(zip(fields[::2], fields[1::2], strict=True))
    seq = _seq_of(name)
    return Arrival(
        seq=seq,
        id=given.get(b"id", b"").decode(errors="replace"),
        task=given.get(b"task", b"").decode(errors="replace"),
        payload=given.get(b"payload", b""),
        options=given.get(b"options", b"{}"),
        arrived=(seq >> _BITS) / 1000,
    )


def name_of(seq: int) -> str:
    return f"{seq >> _BITS}-{seq & (1 << _BITS) - 1}"


def _seq_of(name: bytes) -> int:
    milliseconds, _, number = name.partition(b"-")
    return int(milliseconds) << _BITS | int(number)
