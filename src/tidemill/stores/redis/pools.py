"""Reads the current state of pools, and their history by minute. The result leaves out idle keys, because a
pool may have very many."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tidemill.clock import SystemEntropy
from tidemill.contract.pools import PoolMinute, PoolView
from tidemill.core.accounts import Account
from tidemill.core.ledger import AccountKey
from tidemill.engine import pools as engine
from tidemill.engine.ledger import PoolLedger, PoolRecord
from tidemill.engine.queries import StoreCounters
from tidemill.engine.records import Records
from tidemill.engine.transaction_records import FrozenClock
from tidemill.stores.redis import keys
from tidemill.stores.redis.rows import decode_pool
from tidemill.stores.redis.scripts import load_script
from tidemill.stores.redis.shard import Shard, scan_hash

T = TypeVar("T")

POOLS = load_script("pools")
ACCOUNTS_PER_REQUEST = 500
_ACCOUNT = msgspec.json.Decoder(Account)


class PoolSnapshot(PoolLedger):
    """A ledger that holds some accounts of a pool as they were read. It also has the number of open
    reservations of each account."""

    def __init__(self, clock: FrozenClock, pools: dict[str, PoolRecord]) -> None:
        super().__init__(clock, lambda _: None)
        self.pools = pools
        self.open: dict[AccountKey, int] = {}

    def reservations(self, account_key: AccountKey) -> int:
        return self.open.get(account_key, 0)


async def pools(shard: Shard) -> list[PoolView]:
    """Returns all pools, sorted by name. A pool with keys is followed by an entry for each key that has used
    units, open reservations or a closure (P7)."""
    wall, boot, boot_id, *rows = await shard.run(POOLS, repeatable=True)
    clock = FrozenClock(StoreCounters(float(wall), float(boot), boot_id.decode(), 0, 0, 0))
    known = {name.decode(): decode_pool(text) for name, text in zip(rows[::2], rows[1::2], strict=True)}
    found: list[PoolView] = []
    for name in sorted(known):
        pool = {name: known[name]}
        accounts: dict[AccountKey, Account] = {}
        keyed: dict[str, PoolView] = {}
        async for key, text in scan_hash(shard, keys.accounts(name)):
            accounts[name, key.decode() or None] = _ACCOUNT.decode(text)
            if len(accounts) == ACCOUNTS_PER_REQUEST:
                own = await _views(shard, clock, pool, accounts)
                keyed |= {view.key: view for view in own if view.key is not None}
                accounts = {
                    account_key: account
                    for account_key, account in accounts.items()
                    if account_key[1] is None
                }
        own = await _views(shard, clock, pool, accounts)
        keyed |= {view.key: view for view in own if view.key is not None}
        found += [own[0], *(keyed[key] for key in sorted(keyed))]
    return found


async def _views(
    shard: Shard, clock: FrozenClock, pool: dict[str, PoolRecord], accounts: dict[AccountKey, Account]
) -> list[PoolView]:
    """Returns the view of the pool itself, and then one view for each key in `accounts` that has used units,
    open reservations or a closure."""
    pool_ledger = PoolSnapshot(clock, pool)
    pool_ledger.accounts = accounts
    account_keys = [*accounts, *((name, None) for name in pool if (name, None) not in accounts)]
    names = map(keys.account_name, account_keys)
    counts = await shard.ask(b"HMGET", shard.key(keys.OPEN_RESERVATIONS), *names)
    pool_ledger.open = {key: int(count or 0) for key, count in zip(account_keys, counts, strict=True)}
    records = Records(clock, SystemEntropy())
    records.pool_ledger = pool_ledger
    return engine.list_pools(records)


async def pool_history(shard: Shard, pool: str, since: float) -> list[PoolMinute]:
    """Returns the history of a pool by minute, oldest first (P8). The first minute contains
    `since` (wall time)."""
    calls: dict[float, int] = {}
    units: dict[float, dict[str, float]] = {}
    refusals: dict[float, dict[str, int]] = {}
    async for field, count in scan_hash(shard, keys.pool_history(pool)):
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
