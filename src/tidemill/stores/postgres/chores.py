"""What idle workers ask for every few seconds: each is one statement while there is nothing to do."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.contract.coordinator import Led
from tidemill.contract.jobs import Reclaimed
from tidemill.core.courses import ADVANCING
from tidemill.engine import plans
from tidemill.engine import reclaim as engine
from tidemill.stores.postgres.home import Home
from tidemill.stores.postgres.look_jobs import OVERDUE_AT_ONCE
from tidemill.stores.postgres.statements import load

SQL = load("chores")
_LEAD = SQL.lead.format(**{f"{kind}_due": SQL.due.format(kind=kind) for kind in ADVANCING})


async def lead(home: Home, duties: Sequence[str], worker: str, lease: float) -> Led:
    """C1, C3."""
    clock = home.connection.clock
    (row,) = await home.connection.fetch(_LEAD, *clock.asked(), list(duties), worker, lease)
    won = set(row["won"])
    return Led(
        leads=tuple(duty for duty in duties if duty in won),
        free_in=None if row["free_at"] is None else max(0.0, row["free_at"] - row["boot"]),
        clock=clock.heard(row["wall"], row["boot"], row["epoch"]),
        arrivals=row["arrivals"],
        dues={kind: row[f"{kind}_due"] for kind in ADVANCING},
    )


async def resign(home: Home, duties: Sequence[str], worker: str) -> None:
    """C2."""
    await home.connection.fetch(SQL.resign, list(duties), worker)


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
