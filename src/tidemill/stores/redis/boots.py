"""Another boot of a clock that was given: what it measured is over (J63)."""

from __future__ import annotations

from functools import partial

from tidemill.core.ledger import PLACE
from tidemill.engine import plans
from tidemill.engine.records import Records
from tidemill.stores.redis import keys, scripts
from tidemill.stores.redis.slow import Slow

NOTICE_BOOT = scripts.load("notice_boot")


async def notice_boot(slow: Slow) -> None:
    if not await slow.shard.run(NOTICE_BOOT, repeatable=True):
        return
    shard = slow.shard
    names = [name.decode() for name in await shard.ask("HKEYS", shard.key(keys.POOLS))]
    for name in names:
        found = await shard.ask("HKEYS", shard.key(keys.accounts(name)))
        places = [(name, key.decode() or None) for key in found]
        if places:
            await slow.run(plans.pools([name]), partial(_start_anew, places))


def _start_anew(places: list[PLACE], records: Records) -> None:
    """What is lost with a boot is lost now."""
    for place in places:
        if known := records.books.load(place):
            records.books.save(place, known[1])
