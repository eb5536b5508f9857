"""Another boot: leases are over, and whoever waited by that clock asks again.

The server's own boot clock goes on for ever (`clocks.py`). This is for tests, which bring a clock of theirs.
"""

from __future__ import annotations

from tidemill.core.ledger import PLACE
from tidemill.engine import plans
from tidemill.engine.records import Records
from tidemill.stores.postgres.home import Home
from tidemill.stores.postgres.look_books import place_of
from tidemill.stores.postgres.source import SQL as STEP
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.step import Step

SQL = load("boots")


async def notice_boot(home: Home) -> None:
    """J63."""
    boot_id = home.connection.clock.boot_id
    known = await home.connection.fetch(SQL.last)
    if known and known[0]["boot_id"] == boot_id:
        return

    async def work(step: Step) -> None:
        await step.fetch(STEP.begin, *step.clock.asked())
        last = await step.value(SQL.last)
        if last is None:
            await step.fetch(SQL.first, boot_id)
        elif last != boot_id:
            await step.fetch(SQL.next, boot_id)
            await _begin_anew(home, step)

    await home.connection.run(work)


async def _begin_anew(home: Home, step: Step) -> None:
    for name in (
        "end_leases",
        "end_claims",
        "end_workers",
        "end_leaders",
        "end_left_units",
        "open_lanes",
        "open_groups",
    ):
        await step.fetch(getattr(SQL, name))
    places = [place_of(pool, key) for pool, key in await step.fetch(SQL.accounts)]
    if places:
        pools = {pool for pool, _ in places}
        await home.run_in(step, plans.pools(pools), lambda records: _load_anew(records, places))


def _load_anew(records: Records, places: list[PLACE]) -> None:
    """What is lost with a boot is lost now."""
    for place in places:
        if known := records.books.load(place):
            records.books.save(place, known[1])
