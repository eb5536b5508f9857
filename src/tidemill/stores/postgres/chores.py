"""What idle workers ask for every few seconds: each is one statement while there is nothing to do."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.contract.jobs import Reclaimed
from tidemill.engine import plans
from tidemill.engine import reclaim as engine
from tidemill.stores.postgres.home import Home
from tidemill.stores.postgres.look_jobs import OVERDUE_AT_ONCE
from tidemill.stores.postgres.statements import load

SQL = load("chores")


async def lead(home: Home, duty: str, worker: str, lease: float) -> bool:
    """C1."""
    asked = home.connection.clock.asked()
    return bool(await home.connection.fetch(SQL.lead, *asked, duty, worker, lease))


async def resign(home: Home, duty: str, worker: str) -> None:
    """C2."""
    await home.connection.fetch(SQL.resign, duty, worker)


async def reclaim(home: Home, dead: Sequence[str]) -> Reclaimed:
    if not dead:
        (row,) = await home.connection.fetch(SQL.is_anything_over, *home.connection.clock.asked())
        home.connection.clock.heard(row["wall"], row["boot"], row["epoch"])
        if not row["over"]:
            return Reclaimed((), ())
    ready: list[str] = []
    poison: list[str] = []
    while True:
        found = await home.run(plans.reclaim(dead), lambda records: engine.reclaim(records, dead))
        ready += found.ready
        poison += found.poison
        if len(found.ready) + len(found.poison) < OVERDUE_AT_ONCE:
            return Reclaimed(tuple(ready), tuple(poison))
