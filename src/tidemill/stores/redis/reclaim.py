"""reclaim: as many steps as it takes, each of a bounded number of jobs."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.contract.jobs import Reclaimed
from tidemill.engine import plans
from tidemill.engine import reclaim as engine
from tidemill.stores.redis.slow import Slow


async def reclaim(slow: Slow, dead: Sequence[str]) -> Reclaimed:
    ready: list[str] = []
    poison: list[str] = []
    while True:
        found = await slow.run(plans.reclaim(dead), lambda records: engine.reclaim(records, dead))
        ready += found.ready
        poison += found.poison
        if not found.ready and not found.poison:
            return Reclaimed(tuple(ready), tuple(poison))
