"""Every pool as people see it, and what it did minute by minute.

A pool may have an account for every host ever asked: they are read a piece at a time, and those at rest are
dropped as they come.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tidemill.clock import SystemEntropy
from tidemill.contract.pools import PoolMinute, PoolView
from tidemill.core.accounts import Account
from tidemill.core.ledger import PLACE
from tidemill.engine import pools as engine
from tidemill.engine.ledger import Books, Pool
from tidemill.engine.records import Records
from tidemill.engine.wants import Numbers
from tidemill.engine.workspace import StoppedClock
from tidemill.stores.redis import keys
from tidemill.stores.redis.rows import pool_of
from tidemill.stores.redis.scanning import fields
from tidemill.stores.redis.scripts import load
from tidemill.stores.redis.shard import Shard

T = TypeVar("T")

POOLS = load("pools")
AT_ONCE = 500
_ACCOUNT = msgspec.json.Decoder(Account)


class ReadBooks(Books):
    """Some accounts, and how many reservations of each are open."""

    def __init__(self, clock: StoppedClock, pools: dict[str, Pool]) -> None:
        super().__init__(clock, lambda _: None)
        self.pools = pools
        self.open: dict[PLACE, int] = {}

    def reservations(self, place: PLACE) -> int:
        return self.open.get(place, 0)


async def pools(shard: Shard) -> list[PoolView]:
    """P7."""
    wall, boot, boot_id, *rows = await shard.run(POOLS, repeatable=True)
    clock = StoppedClock(Numbers(float(wall), float(boot), boot_id.decode(), 0, 0, 0))
    known = {name.decode(): pool_of(text) for name, text in zip(rows[::2], rows[1::2], strict=True)}
    found: list[PoolView] = []
    for name in sorted(known):
        pool = {name: known[name]}
        accounts: dict[PLACE, Account] = {}
        keyed: dict[str, PoolView] = {}
        async for key, text in fields(shard, keys.accounts(name)):
            accounts[name, key.decode() or None] = _ACCOUNT.decode(text)
            if len(accounts) == AT_ONCE:
                own = await _views(shard, clock, pool, accounts)
                keyed |= {view.key: view for view in own if view.key is not None}
                accounts = {place: account for place, account in accounts.items() if place[1] is None}
        own = await _views(shard, clock, pool, accounts)
        keyed |= {view.key: view for view in own if view.key is not None}
        found += [own[0], *(keyed[key] for key in sorted(keyed))]
    return found


async def _views(
    shard: Shard, clock: StoppedClock, pool: dict[str, Pool], accounts: dict[PLACE, Account]
) -> list[PoolView]:
    """That of the pool first, then those of its keys that have something taken or closed."""
    books = ReadBooks(clock, pool)
    books.accounts = accounts
    places = [*accounts, *((name, None) for name in pool if (name, None) not in accounts)]
    counts = await shard.ask(b"HMGET", shard.key(keys.RESERVED_AT), *map(keys.place, places))
    books.open = {place: int(count or 0) for place, count in zip(places, counts, strict=True)}
    records = Records(clock, SystemEntropy())
    records.books = books
    return engine.pools(records)


async def pool_history(shard: Shard, pool: str, since: float) -> list[PoolMinute]:
    """P8."""
    calls: dict[float, int] = {}
    units: dict[float, dict[str, float]] = {}
    refusals: dict[float, dict[str, int]] = {}
    async for field, count in fields(shard, keys.pool_history(pool)):
        minute, kind, *name = field.decode().split(":", 2)
        at = float(minute)
        if at < since // 60 * 60:
            continue
        if kind == "calls":
            calls[at] = int(count)
        elif kind == "unit":
            units.setdefault(at, {})[name[0]] = float(count)
        else:
            refusals.setdefault(at, {})[name[0]] = int(count)
    return [
        PoolMinute(
            at=at, calls=calls.get(at, 0), units=_sorted(units.get(at)), refusals=_sorted(refusals.get(at))
        )
        for at in sorted({*calls, *units, *refusals})
    ]


def _sorted(amounts: dict[str, T] | None) -> dict[str, T]:
    return dict(sorted((amounts or {}).items()))
