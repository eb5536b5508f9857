"""All metrics as one text, for whoever asks every few seconds."""

from __future__ import annotations

from tidemill.contract.store import Store
from tidemill.inspect.outlook import Outlook, look_out
from tidemill.inspect.pools import status_of_all
from tidemill.metrics.fleet import of_fleet
from tidemill.metrics.own import of_processes
from tidemill.metrics.pools import of_pools
from tidemill.metrics.queues import of_queues
from tidemill.metrics.text import render
from tidemill.tallies.tally import Tally
from tidemill.tallies.totals import totals

LONG = 0.2
"""Seconds: of thousands of lanes, each scrape would take as long."""


class Exposition:
    """Keeps the forecast it made last: one that took long is shown for ten times as long. `tally` is what
    this process counts."""

    def __init__(self, tally: Tally | None = None) -> None:
        self._tally = tally
        self._outlook: Outlook | None = None

    async def text(self, store: Store) -> str:
        situation, outlook = await look_out(store, self._outlook)
        self._outlook = outlook if outlook.took > LONG else None
        pools = status_of_all(situation, outlook.drains)
        ended = await totals(
            store, [info.name for info in situation.queues], sorted({pool.name for pool in pools})
        )
        return render(
            [
                *await of_queues(store, situation, outlook.drains, ended.queues),
                *of_pools(pools, outlook.drains, ended.pools, situation.now.wall),
                *await of_fleet(store, situation),
                *await of_processes(store, self._tally),
            ]
        )


async def exposition(store: Store, tally: Tally | None = None) -> str:
    return await Exposition(tally).text(store)
