"""Builds the status of pools: limits, closures, waiting jobs and forecast."""

from __future__ import annotations

from collections import Counter

import msgspec

from tidemill.contract.pools import LimitView, PoolView
from tidemill.contract.store import Store
from tidemill.core import pool_statistics
from tidemill.core.accounts import Account, OperatorClosure
from tidemill.core.closures import Closure
from tidemill.core.forecast.completion import PoolKey
from tidemill.core.needs import Units
from tidemill.core.overrides import Override, apply_override
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.errors import PoolNotFound
from tidemill.inspect.forecast import Forecast, Forecasts
from tidemill.inspect.forecast_inputs import StoreSnapshot, load_snapshot


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A pool, or one key of it, at one moment. Times are wall times, durations are seconds.

    - `keyed`: True if each key has its own limits
    - `limits`: the amounts in force and declared, the used units, and when all units are free again
    - `override`: amounts that an operator set for the whole pool
    - `key_override`: amounts that an operator set for this key; they win over `override`
    - `closures`: why the breaker closed the pool, and until when; an expired closure waits for a probe
    - `closed`: an operator's closure
    - `reservations`: the number of running calls
    - `external_usage`: units that other programs used, by limit
    - `ramp`: the open share during the slow start, 0 to 1; None without a ramp
    - `waiting`: the number of ready jobs that need the pool
    - `forecast`: when those jobs will be done; None if no job waits or the end is unknown"""

    name: str
    key: str | None
    keyed: bool
    limits: tuple[LimitView, ...]
    declared: PoolSettings
    override: Override[LimitChanges] | None
    key_override: Override[LimitChanges] | None
    closures: tuple[Closure, ...]
    closed: OperatorClosure | None
    reservations: int
    external_usage: Units
    ramp: float | None
    waiting: int
    forecast: Forecast | None

    @property
    def is_open(self) -> bool:
        return self.closed is None and not self.closures

    @property
    def own_override(self) -> Override[LimitChanges] | None:
        """The override of this pool; for a key, the override of this key."""
        return self.override if self.key is None else self.key_override


def pool_statuses(snapshot: StoreSnapshot, forecasts: Forecasts) -> list[PoolStatus]:
    waiting = _count_waiting(snapshot)
    return [_make_status(view, waiting, forecasts) for view in snapshot.pools]


def pool_status(snapshot: StoreSnapshot, forecasts: Forecasts, name: str, key: str | None) -> PoolStatus:
    return _make_status(_find_view(snapshot, name, key), _count_waiting(snapshot), forecasts)


async def require_pool(store: Store, name: str, key: str | None = None) -> PoolView:
    return _find_view(await load_snapshot(store), name, key)


def _find_view(snapshot: StoreSnapshot, name: str, key: str | None) -> PoolView:
    """Returns the view of a pool, or of one `key` of it. A key that was never used has a view without usage.

    Raises PoolNotFound for an unknown name, or if `key` is given and the pool has no keys."""
    views = {(view.name, view.key): view for view in snapshot.pools}
    pool = views.get((name, None))
    if pool is None:
        known = ", ".join(sorted({view.name for view in snapshot.pools})) or "none yet"
        raise PoolNotFound(f"there is no pool {name!r}; there are: {known}")
    if key is None or (name, key) in views:
        return views[name, key]
    if not pool.declared.keyed:
        raise PoolNotFound(f"pool {name!r} has no keys; leave {key!r} out")
    return _unused_key_view(pool, key, snapshot)


def _unused_key_view(pool: PoolView, key: str, snapshot: StoreSnapshot) -> PoolView:
    settings = apply_override(pool.declared, pool.override, snapshot.now.wall)
    unused = Account()
    limits = tuple(
        msgspec.structs.replace(
            view, used=pool_statistics.used_units(settings, unused, limit, snapshot.now), free_in=0.0
        )
        for view, limit in zip(pool.limits, settings.limits, strict=True)
    )
    return msgspec.structs.replace(
        pool,
        key=key,
        limits=limits,
        closures=(),
        closed=None,
        reservations=0,
        external_usage={},
        ramp=None,
        account=unused,
    )


def _count_waiting(snapshot: StoreSnapshot) -> Counter[PoolKey]:
    """Returns the number of ready jobs by pool and key. The entry with the key None counts the jobs of all
    keys."""
    found: Counter[PoolKey] = Counter()
    for demand in snapshot.demand:
        for pool_key in {(need.pool, key) for need in demand.needs for key in (need.key, None)}:
            found[pool_key] += demand.jobs
    return found


def _make_status(view: PoolView, waiting: Counter[PoolKey], forecasts: Forecasts) -> PoolStatus:
    pool_key = (view.name, view.key)
    return PoolStatus(
        name=view.name,
        key=view.key,
        keyed=view.declared.keyed,
        limits=view.limits,
        declared=view.declared,
        override=view.override,
        key_override=view.key_override,
        closures=view.closures,
        closed=view.closed,
        reservations=view.reservations,
        external_usage=view.external_usage,
        ramp=view.ramp,
        waiting=waiting[pool_key],
        forecast=forecasts.pools.get(pool_key),
    )
