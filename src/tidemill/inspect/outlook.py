"""The forecast of a display that asks every second, made anew when it is worth its time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidemill.contract.store import Store
from tidemill.core.demand import Demand
from tidemill.inspect.draining import Drains, drains
from tidemill.inspect.situation import Situation, look

SHOWN_FOR = 10.0
"""Times as long as it took to make: thousands of lanes take a second, and then it is a tenth of the work."""


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """`at` is the boot time when it was made, `took` how many seconds that needed."""

    demand: Sequence[Demand]
    drains: Drains
    at: float
    took: float


async def look_out(store: Store, before: Outlook | None) -> tuple[Situation, Outlook]:
    """What is there now, and a forecast that may be the one from before."""
    began = (await store.read_clock()).boot
    if before is not None and began - before.at < SHOWN_FOR * before.took:
        return await look(store, demand=before.demand), before
    situation = await look(store)
    found = await drains(store, situation)
    ended = (await store.read_clock()).boot
    return situation, Outlook(demand=situation.demand, drains=found, at=ended, took=ended - began)
