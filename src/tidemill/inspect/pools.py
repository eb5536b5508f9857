"""What a pool is doing, and what a person sets on it over what code declared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import UnsetType

from tidemill.contract.pools import LimitView, PoolView
from tidemill.contract.store import Store
from tidemill.core import usage
from tidemill.core.accounts import Account, HandClosure
from tidemill.core.closing import Closure
from tidemill.core.forecast.meeting import PLACE
from tidemill.core.pools import PoolChanges, PoolOverride, PoolSettings, in_force
from tidemill.core.units import Units
from tidemill.errors import ConfigurationError, PoolNotFound
from tidemill.inspect.draining import Drains, Forecast
from tidemill.inspect.situation import Situation, look
from tidemill.inspect.steering import future


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A pool, or one key of it, as of one moment. Times are wall times, durations seconds.

    limits: what is allowed now, what code declared, what is used, and when all of it is free again.
    override: a person's other amounts, None when none holds.
    closures: what its breaker was tripped for, until when; past its time one waits for a probe.
    closed: a person's mark, None when there is none.
    reservations: calls under way. foreign: what others were seen to use of each limit.
    ramp: the share that is open while it opens slowly, None when it is not ramping.
    waiting: ready jobs that need it. forecast: when they will be done, None when none wait or nobody can say.
    """

    name: str
    key: str | None
    keyed: bool
    limits: tuple[LimitView, ...]
    declared: PoolSettings
    override: PoolOverride | None
    closures: tuple[Closure, ...]
    closed: HandClosure | None
    reservations: int
    foreign: Units
    ramp: float | None
    waiting: int
    forecast: Forecast | None

    @property
    def is_open(self) -> bool:
        return self.closed is None and not self.closures


def status_of_all(situation: Situation, found: Drains) -> list[PoolStatus]:
    waiting = _waiting(situation)
    return [_status(view, waiting, found) for view in situation.pools]


def status_of_one(situation: Situation, found: Drains, name: str, key: str | None) -> PoolStatus:
    return _status(_view(situation, name, key), _waiting(situation), found)


async def require(store: Store, name: str, key: str | None = None) -> PoolView:
    return _view(await look(store), name, key)


async def override(
    store: Store,
    name: str,
    amounts: Mapping[str, float],
    *,
    by: str,
    reason: str | None,
    until: float | datetime | UnsetType | None,
) -> None:
    """What is set joins what was set before, as with queues."""
    held = (await require(store, name)).override
    if not amounts:
        raise ConfigurationError(
            f"pool {name!r}: name at least one limit, such as {{'requests per minute': 5}}"
        )
    before = {} if held is None else held.changes.amounts
    if isinstance(until, UnsetType):
        end = None if held is None else held.until
    else:
        end = await future(store, until)
    changes = PoolChanges(amounts=before | dict(amounts))
    await store.override_pool(name, changes, by=by, reason=reason, until=end)


async def clear_override(store: Store, name: str, limits: tuple[str, ...]) -> None:
    view = await require(store, name)
    known = [limit.name for limit in view.declared.limits]
    for limit in limits:
        if limit not in known:
            raise ConfigurationError(
                f"{limit!r} is not a limit of pool {name!r}; there are: {', '.join(known)}"
            )
    held = view.override
    if held is None:
        return
    left = {limit: amount for limit, amount in held.changes.amounts.items() if limits and limit not in limits}
    changes = PoolChanges(amounts=left) if left else None
    await store.override_pool(name, changes, by=held.by, reason=held.reason, until=held.until)


async def close(
    store: Store, name: str, key: str | None, *, by: str, reason: str | None, until: float | datetime | None
) -> None:
    await require(store, name)
    await store.close_pool(name, key=key, until=await future(store, until), by=by, reason=reason)


def _view(situation: Situation, name: str, key: str | None) -> PoolView:
    """A mistyped name is told; a key nobody has used yet is there, unused."""
    views = {(view.name, view.key): view for view in situation.pools}
    pool = views.get((name, None))
    if pool is None:
        there = ", ".join(sorted({view.name for view in situation.pools})) or "none yet"
        raise PoolNotFound(f"there is no pool {name!r}; there are: {there}")
    if key is None or (name, key) in views:
        return views[name, key]
    if not pool.declared.keyed:
        raise PoolNotFound(f"pool {name!r} has no keys; leave {key!r} out")
    return _unused(pool, key, situation)


def _unused(pool: PoolView, key: str, situation: Situation) -> PoolView:
    settings = in_force(pool.declared, pool.override, situation.now.wall)
    free = Account()
    limits = tuple(
        msgspec.structs.replace(view, used=usage.used(settings, free, limit, situation.now), free_in=0.0)
        for view, limit in zip(pool.limits, settings.limits, strict=True)
    )
    return msgspec.structs.replace(
        pool,
        key=key,
        limits=limits,
        closures=(),
        closed=None,
        reservations=0,
        foreign={},
        ramp=None,
        account=free,
    )


def _waiting(situation: Situation) -> Counter[PLACE]:
    """Ready jobs by what they need; a pool with keys has those of all of them."""
    found: Counter[PLACE] = Counter()
    for each in situation.demand:
        for place in {(need.pool, key) for need in each.needs for key in (need.key, None)}:
            found[place] += each.jobs
    return found


def _status(view: PoolView, waiting: Counter[PLACE], found: Drains) -> PoolStatus:
    place = (view.name, view.key)
    return PoolStatus(
        name=view.name,
        key=view.key,
        keyed=view.declared.keyed,
        limits=view.limits,
        declared=view.declared,
        override=view.override,
        closures=view.closures,
        closed=view.closed,
        reservations=view.reservations,
        foreign=view.foreign,
        ramp=view.ramp,
        waiting=waiting[place],
        forecast=found.pools.get(place),
    )
