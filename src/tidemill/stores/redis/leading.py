"""Who does the chores: asked by every worker every few seconds, so it is one command."""

from __future__ import annotations

from tidemill.stores.redis import scripts
from tidemill.stores.redis.shard import Shard

LEAD, RESIGN = scripts.load("lead"), scripts.load("resign")


async def lead(shard: Shard, duty: str, worker: str, lease: float) -> bool:
    """C1."""
    return bool(await shard.run(LEAD, duty, worker, lease, repeatable=True))


async def resign(shard: Shard, duty: str, worker: str) -> None:
    """C2."""
    await shard.run(RESIGN, duty, worker, repeatable=True)
