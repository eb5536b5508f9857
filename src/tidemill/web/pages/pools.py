"""Pools: how full, until when closed, who waits, and when that will be done."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidemill.inspect.pools import PoolStatus
from tidemill.seam.answers import Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked

KEYS_SHOWN = 6


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A pool with those of its keys that have most to do, and how many others have something."""

    pool: PoolStatus
    keys: tuple[PoolStatus, ...]
    more: int


async def pools(asked: Asked) -> Page:
    found = await asked.inspect.pools(sparing=True)
    return Page(
        "pools.html",
        {"pools": [_shown(pool, found) for pool in found if pool.key is None]},
        live=("pools",),
    )


def busiest(pools: Iterable[PoolStatus], name: str) -> list[PoolStatus]:
    """The keys of a pool: closed ones first, then by how many jobs wait, then by how full they are."""
    keys = [pool for pool in pools if pool.name == name and pool.key is not None]
    return sorted(keys, key=lambda pool: (pool.is_open, -pool.waiting, -fullness(pool), pool.key))


def fullness(pool: PoolStatus) -> float:
    return max((limit.used / limit.amount for limit in pool.limits), default=0.0)


def _shown(pool: PoolStatus, found: list[PoolStatus]) -> Shown:
    keys = busiest(found, pool.name) if pool.keyed else []
    return Shown(pool=pool, keys=tuple(keys[:KEYS_SHOWN]), more=max(0, len(keys) - KEYS_SHOWN))


ROUTES = (
    Route(
        method="GET",
        path="/pools",
        role=Role.VIEWER,
        handler=pools,
        says="Every pool, as of now.",
    ),
)
