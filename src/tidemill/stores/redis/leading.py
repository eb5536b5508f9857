"""Who does the chores, and whether there is anything to do: asked by every worker every few seconds, so it is
one command."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.contract.coordinator import Led
from tidemill.contract.jobs import Reading
from tidemill.core.courses import ADVANCING
from tidemill.stores.redis import scripts
from tidemill.stores.redis.shard import Shard

LEAD, RESIGN = scripts.load("lead"), scripts.load("resign")


async def lead(shard: Shard, duties: Sequence[str], worker: str, lease: float) -> Led:
    """C1, C3."""
    answer = await shard.run(LEAD, worker, lease, *duties, repeatable=True)
    wall, boot, arrivals, flow, schedule, *left = answer
    others = [float(seconds) for seconds in left if seconds]
    return Led(
        leads=tuple(duty for duty, seconds in zip(duties, left, strict=True) if not seconds),
        free_in=min(others, default=None),
        clock=Reading(float(wall), float(boot)),
        arrivals=bool(arrivals),
        dues={
            kind: float(due) if due else None for kind, due in zip(ADVANCING, (flow, schedule), strict=True)
        },
    )


async def resign(shard: Shard, duties: Sequence[str], worker: str) -> None:
    """C2."""
    await shard.run(RESIGN, worker, *duties, repeatable=True)
