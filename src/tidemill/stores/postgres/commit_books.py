"""What a step made of pools, and of who holds units of them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidemill.core.pool_history import Remark
from tidemill.engine.changes import Changes
from tidemill.engine.ledger import Claim
from tidemill.stores.postgres.look_books import key_text
from tidemill.stores.postgres.rows import text_of
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.view import View

SQL = load("commit_books")
_UNITS = msgspec.json.Decoder(dict[str, float])
_REFUSALS = msgspec.json.Decoder(dict[str, int])


async def commit(view: View, changes: Changes) -> None:
    await _pools(view, changes)
    await _reserved(view, changes)
    left = [
        {**_named(claim), "worker": units.worker, "lease": units.lease}
        for claim, units in changes.left.items()
        if units is not None
    ]
    if left:
        await view.fetch(SQL.left_units, text_of(left))
    await _end(view, SQL.end_left_units, (claim for claim, units in changes.left.items() if units is None))
    unheard = [
        {**_named(claim), "since": since} for claim, since in changes.unheard.items() if since is not None
    ]
    if unheard:
        await view.fetch(SQL.unheard, text_of(unheard))
    await _end(view, SQL.heard, (claim for claim, since in changes.unheard.items() if since is None))
    if changes.pool_history:
        await _history(view, changes)


async def _pools(view: View, changes: Changes) -> None:
    pools = [
        {
            "name": name,
            "declared": text_of(pool.declared),
            "override": None if pool.override is None else text_of(pool.override),
        }
        for name, pool in changes.pools.items()
    ]
    if pools:
        await view.fetch(SQL.pools, text_of(pools))
    accounts = [
        {"pool": pool, "key": key_text(key), "looked": view.numbers.wall, "account": text_of(account)}
        for (pool, key), account in changes.accounts.items()
    ]
    if accounts:
        await view.fetch(SQL.accounts, text_of(accounts))


async def _reserved(view: View, changes: Changes) -> None:
    await _end(view, SQL.end_reservations, changes.reserved)
    units = [
        {
            **_named(claim),
            "number": at,
            "pool": one.pool,
            "key": key_text(one.key),
            "reserved": text_of(one),
        }
        for claim, held in changes.reserved.items()
        for at, one in enumerate(held)
    ]
    if units:
        await view.fetch(SQL.reservations, text_of(units))


def _named(claim: Claim) -> dict[str, str | int]:
    job, fence, number = claim
    return {"job": job, "fence": fence, "claim": number}


async def _end(view: View, sql: str, claims: Iterable[Claim]) -> None:
    if listed := list(claims):
        await view.fetch(sql, *map(list, zip(*listed, strict=True)))


def remark_of(calls: int, units: str, refusals: str) -> Remark:
    return Remark(calls=calls, units=_UNITS.decode(units), refusals=_REFUSALS.decode(refusals))


async def _history(view: View, changes: Changes) -> None:
    """Only steps add to it, and they come one after the other."""
    after = dict(changes.pool_history)
    pools, minutes = [pool for pool, _ in after], [minute for _, minute in after]
    for pool, minute, *row in await view.fetch(SQL.minutes, pools, minutes):
        after[pool, minute] = remark_of(*row).plus(after[pool, minute])
    rows = [
        {
            "pool": pool,
            "minute": minute,
            "calls": what.calls,
            "units": text_of(what.units),
            "refusals": text_of(what.refusals),
        }
        for (pool, minute), what in after.items()
    ]
    await view.fetch(SQL.history, text_of(rows))
