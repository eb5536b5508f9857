"""Numbers of pools. A keyed one is shown as a whole: a series for every key, that is for every host or user
ever asked, would outgrow whoever keeps them. What matters of the keys is how many there are, how many are
closed, and how full the fullest is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemill.core.pool_history import Remark
from tidemill.inspect.draining import Drains
from tidemill.inspect.pools import PoolStatus
from tidemill.metrics import catalogue
from tidemill.metrics.catalogue import valued
from tidemill.metrics.queues import until
from tidemill.tallies.families import Counted

Limits = dict[tuple[str, str], float]


def of_pools(
    pools: Sequence[PoolStatus], drains: Drains, spent: Mapping[str, Remark], now: float
) -> list[Counted]:
    whole = [pool for pool in pools if pool.key is None]
    keys: dict[str, list[PoolStatus]] = {pool.name: [] for pool in whole}
    for pool in pools:
        if pool.key is not None:
            keys[pool.name].append(pool)
    keyed = {pool.name: keys[pool.name] for pool in whole if pool.keyed}
    waiting = {pool.name: pool.waiting for pool in whole}
    found = {name: forecast for (name, key), forecast in drains.pools.items() if key is None}
    return [
        valued(catalogue.POOL_OPEN, {pool.name: pool.is_open for pool in whole}),
        *_limits(whole, keys),
        valued(
            catalogue.POOL_RESERVATIONS,
            {pool.name: sum(one.reservations for one in (pool, *keys[pool.name])) for pool in whole},
        ),
        valued(catalogue.POOL_WAITING, waiting),
        valued(catalogue.POOL_KEYS, {name: len(of) for name, of in keyed.items()}),
        valued(
            catalogue.POOL_KEYS_CLOSED,
            {name: sum(not key.is_open for key in of) for name, of in keyed.items()},
        ),
        valued(catalogue.POOL_DRAIN, dict(until(found, waiting, now))),
        *_counters({pool.name: spent.get(pool.name, Remark()) for pool in whole}),
    ]


def _limits(whole: Sequence[PoolStatus], keys: Mapping[str, Sequence[PoolStatus]]) -> list[Counted]:
    amount: Limits = {}
    used: Limits = {}
    share: Limits = {}
    for pool in whole:
        for limit in (limit for one in (pool, *keys[pool.name]) for limit in one.limits):
            place = (pool.name, limit.name)
            amount[place] = limit.amount
            used[place] = max(used.get(place, 0.0), limit.used)
            share[place] = max(share.get(place, 0.0), _share(limit.used, limit.amount))
    return [
        valued(catalogue.POOL_AMOUNT, amount),
        valued(catalogue.POOL_USED, used),
        valued(catalogue.POOL_UTILISATION, share),
    ]


def _share(used: float, amount: float) -> float:
    """A limit of nothing is used up."""
    return used / amount if amount else 1.0


def _counters(spent: Mapping[str, Remark]) -> list[Counted]:
    return [
        valued(catalogue.POOL_CALLS, {name: of.calls for name, of in spent.items()}),
        valued(
            catalogue.POOL_UNITS,
            {(name, unit): amount for name, of in spent.items() for unit, amount in of.units.items()},
        ),
        valued(
            catalogue.POOL_REFUSALS,
            {(name, reason): times for name, of in spent.items() for reason, times in of.refusals.items()},
        ),
    ]
