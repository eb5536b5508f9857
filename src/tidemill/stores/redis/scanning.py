"""Long hashes and orders, read a piece at a time: whatever is there all the while is met."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tidemill.stores.redis import keys
from tidemill.stores.redis.shard import Shard

AT_ONCE = 1000


async def fields(shard: Shard, name: str) -> AsyncIterator[tuple[bytes, bytes]]:
    """Of a hash, with their values; one may come twice."""
    async for found in _pieces(shard, b"HSCAN", name):
        for pair in zip(found[::2], found[1::2], strict=True):
            yield pair


async def members(shard: Shard, name: str) -> list[bytes]:
    """Of a sorted set, in no order."""
    known: dict[bytes, None] = {}
    async for found in _pieces(shard, b"ZSCAN", name):
        known |= dict.fromkeys(found[::2])
    return list(known)


async def ready_lanes(shard: Shard, queue: str) -> list[str]:
    """The lanes of a queue that may have something ready, that of the plain jobs first."""
    found = {name.decode(): None async for name, _ in fields(shard, keys.lanes(queue))}
    return ["", *sorted(found)]


async def _pieces(shard: Shard, command: bytes, name: str) -> AsyncIterator[list[bytes]]:
    cursor = b"0"
    while True:
        cursor, found = await shard.ask(command, shard.key(name), cursor, b"COUNT", AT_ONCE)
        yield found
        if cursor == b"0":
            return
