"""What a step made of pools, and of who holds units of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tidemill.core.pool_history import Remark
from tidemill.engine.changes import Changes
from tidemill.engine.ledger import Claim
from tidemill.stores.postgres.columns import words
from tidemill.stores.postgres.look_books import key_text
from tidemill.stores.postgres.rows import text_of
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.view import View

SQL = load("commit")
_UNITS = msgspec.json.Decoder(dict[str, float])
_REFUSALS = msgspec.json.Decoder(dict[str, int])


def parts(changes: Changes, now: float) -> dict[str, Any]:
    return {
        "new_pools": [
            {
                "name": name,
                "declared": text_of(pool.declared),
                "override": None if pool.override is None else text_of(pool.override),
            }
            for name, pool in changes.pools.items()
        ],
        "new_accounts": [
            {"pool": pool, "key": key_text(key), "looked": now, "account": text_of(account)}
            for (pool, key), account in changes.accounts.items()
        ],
        **_reserved(changes),
        **_silent(changes),
    }


def _reserved(changes: Changes) -> dict[str, Any]:
    return {
        "ended": _named(changes.reserved),
        "reserved": [
            {
                **_name(claim),
                "number": at,
                "pool": one.pool,
                "key": key_text(one.key),
                "reserved": text_of(one),
            }
            for claim, held in changes.reserved.items()
            for at, one in enumerate(held)
        ],
    }


def _silent(changes: Changes) -> dict[str, Any]:
    left, unheard = changes.left.items(), changes.unheard.items()
    return {
        "left_to": [
            {**_name(claim), "worker": units.worker, "lease": units.lease}
            for claim, units in left
            if units is not None
        ],
        "left_by": _named(claim for claim, units in left if units is None),
        "silent": [{**_name(claim), "since": since} for claim, since in unheard if since is not None],
        "heard": _named(claim for claim, since in unheard if since is None),
    }


def _named(claims: Iterable[Claim]) -> list[dict[str, Any]]:
    return [_name(claim) for claim in claims]


def _name(claim: Claim) -> dict[str, Any]:
    job, fence, number = claim
    return {"job": job, "fence": fence, "claim": number}


def remark_of(calls: int, units: str, refusals: str) -> Remark:
    return Remark(calls=calls, units=_UNITS.decode(units), refusals=_REFUSALS.decode(refusals))


async def pool_minutes(view: View, changes: Changes) -> list[dict[str, Any]]:
    """With what is there already: only steps add to it, and they come one after the other."""
    after = dict(changes.pool_history)
    pools, minutes = [pool for pool, _ in after], words(minute for _, minute in after)
    for pool, minute, *row in await view.fetch(SQL.pool_minutes, pools, minutes):
        after[pool, minute] = remark_of(*row).plus(after[pool, minute])
    return [
        {
            "pool": pool,
            "minute": minute,
            "calls": what.calls,
            "units": text_of(what.units),
            "refusals": text_of(what.refusals),
        }
        for (pool, minute), what in after.items()
    ]
