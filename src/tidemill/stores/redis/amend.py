"""amend: who is meant is found first; in the steps themselves only they are looked at once more."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from tidemill.core.changes import Amended, Change
from tidemill.core.filters import Filter, checked
from tidemill.engine import amend as engine
from tidemill.engine import plans
from tidemill.stores.redis import reader
from tidemill.stores.redis.bounds import fitting
from tidemill.stores.redis.slow import Slow


async def amend(slow: Slow, wanted: Filter, change: Change, limit: int) -> Amended:
    """As many steps as it takes, each of a bounded number of jobs."""
    checked(wanted)
    meant = tuple(await reader.oldest_first(slow.shard, wanted, limit))
    changed: list[str] = []
    unchanged: list[str] = []
    while meant:
        count = await fitting(slow.shard, meant)
        some, meant = meant[:count], meant[count:]
        named = replace(wanted, ids=some)
        found = await slow.run(
            plans.amend(some, change), partial(engine.amend, wanted=named, change=change, limit=limit)
        )
        changed += found.changed
        unchanged += found.unchanged
    return Amended(tuple(changed), tuple(unchanged))
