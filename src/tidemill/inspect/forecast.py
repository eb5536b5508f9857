"""Forecasts when the jobs that wait now will be done, per queue and pool, with a cache."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tidemill.contract.store import Store
from tidemill.core.forecast.backlog import Demand, LaneBacklog
from tidemill.core.forecast.completion import ForecastRequest, PoolKey, completion_times
from tidemill.core.states import State
from tidemill.inspect.forecast_inputs import (
    FindPool,
    StoreSnapshot,
    group_demand,
    load_snapshot,
    mean_job_seconds,
)

RATE_WINDOW_SECONDS = 600.0
"""The rate of jobs without pools is measured over this many seconds."""


class Forecast(msgspec.Struct, frozen=True):
    """When all of the ready jobs will be done. `jobs` is the number of these jobs. `done_at` is a wall time;
    None means never, unless something changes."""

    jobs: int
    done_at: float | None


class Forecasts(msgspec.Struct, frozen=True):
    """Forecasts by queue name, and by pool name and key. A queue or pool is left out if it has no ready jobs,
    or if the end is unknown."""

    queues: Mapping[str, Forecast]
    pools: Mapping[PoolKey, Forecast]


async def compute_forecasts(store: Store, snapshot: StoreSnapshot) -> Forecasts:
    find_pool, call_seconds = snapshot.known(), await _mean_call_seconds(store, snapshot)
    backlogs = group_demand(snapshot, snapshot.demand, find_pool)
    worker_capacity = snapshot.worker_capacity([info.name for info in snapshot.queues])
    request = ForecastRequest(
        lines=backlogs, know=find_pool, worker_capacity=worker_capacity, call_seconds=call_seconds or 0.0
    )
    last = {
        id(backlog): found[-1] + (call_seconds or 0.0)
        for backlog, found in zip(backlogs, completion_times(request), strict=True)
        if call_seconds is not None or not _depends_on_call_time(backlog, find_pool)
    }
    ended = [(backlog, last.get(id(backlog))) for backlog in backlogs]
    return Forecasts(await _forecast_queues(store, snapshot, ended), _forecast_pools(snapshot, ended))


BacklogEnds = Iterable[tuple[LaneBacklog, float | None]]
"""Backlogs with the seconds until they are drained; None if unknown."""


def _forecast_pools(snapshot: StoreSnapshot, ended: BacklogEnds) -> dict[PoolKey, Forecast]:
    """Returns the forecast of each pool and of each key. The key None stands for all keys of a pool.

    `ended`: pairs of a group of waiting calls and the seconds until all of them are done."""
    jobs: dict[PoolKey, int] = {}
    for demand in snapshot.demand:
        for pool_key in _pool_keys(demand):
            jobs[pool_key] = jobs.get(pool_key, 0) + demand.jobs
    seconds: dict[PoolKey, float | None] = {}
    for backlog, end in ended:
        for need in backlog.work[0].needs:
            for pool_key in {(need.pool, need.key), (need.pool, None)}:
                seconds[pool_key] = _later(seconds.get(pool_key, 0.0), end)
    known = ((pool_key, end) for pool_key, end in seconds.items() if end is not None)
    return {pool_key: Forecast(jobs[pool_key], _wall_time(snapshot, end)) for pool_key, end in known}


async def _forecast_queues(store: Store, snapshot: StoreSnapshot, ended: BacklogEnds) -> dict[str, Forecast]:
    pooled: dict[str, int] = {}
    for demand in snapshot.demand:
        pooled[demand.queue] = pooled.get(demand.queue, 0) + demand.jobs
    seconds: dict[str, float | None] = {}
    for backlog, end in ended:
        seconds[backlog.queue] = _later(seconds.get(backlog.queue, 0.0), end)
    found = {}
    for queue, states in (await store.counts()).items():
        ready = states.get(State.READY, 0)
        end = seconds.get(queue, 0.0)
        if plain := ready - pooled.get(queue, 0):
            end = _later(end, await _seconds_at_recent_rate(store, snapshot, queue, plain))
        if ready and end is not None:
            found[queue] = Forecast(ready, _wall_time(snapshot, end))
    return found


async def _seconds_at_recent_rate(
    store: Store, snapshot: StoreSnapshot, queue: str, jobs: int
) -> float | None:
    if opens := snapshot.seconds_until_resumed(queue):
        return math.inf if math.isinf(opens) else None
    minutes = await store.history(queue, snapshot.now.wall - RATE_WINDOW_SECONDS)
    ended = sum(minute.done + minute.failed for minute in minutes)
    return jobs * RATE_WINDOW_SECONDS / ended if ended else None


async def _mean_call_seconds(store: Store, snapshot: StoreSnapshot) -> float | None:
    """Returns the mean seconds per call, over all queues with ready jobs that need pools or batches; None if
    unknown.

    A queue with more of these jobs has more weight."""
    jobs: dict[str, int] = {}
    for demand in snapshot.demand:
        jobs[demand.queue] = jobs.get(demand.queue, 0) + demand.jobs
    took = [(await mean_job_seconds(store, queue), count) for queue, count in jobs.items()]
    known = [(seconds, count) for seconds, count in took if seconds is not None]
    total = sum(count for _, count in known)
    return sum(seconds * count for seconds, count in known) / total if total else None


def _depends_on_call_time(backlog: LaneBacklog, find_pool: FindPool) -> bool:
    """True if a pool of the backlog has a concurrency limit. The duration of a call then decides how many
    calls per minute are possible."""
    found = [find_pool((need.pool, need.key)) for need in backlog.work[0].needs]
    return any(limit.per is None for known in found if known is not None for limit in known.settings.limits)


def _pool_keys(demand: Demand) -> set[PoolKey]:
    return {pool_key for need in demand.needs for pool_key in ((need.pool, need.key), (need.pool, None))}


def _later(time: float | None, other: float | None) -> float | None:
    return None if time is None or other is None else max(time, other)


def _wall_time(snapshot: StoreSnapshot, seconds: float) -> float | None:
    return None if math.isinf(seconds) else snapshot.now.wall + seconds


CACHE_TIME_FACTOR = 10.0
"""A forecast is reused for ten times as long as it took to compute. With thousands of lanes it takes a
second, so it costs at most a tenth of the time."""


class CachedForecast(msgspec.Struct, frozen=True, kw_only=True):
    """A computed forecast, and the demand it was computed from.

    - `at`: when it was computed, by the store's boot clock.
    - `took`: how many seconds the computation needed."""

    demand: Sequence[Demand]
    forecasts: Forecasts
    at: float
    took: float


async def load_forecast(store: Store, before: CachedForecast | None) -> tuple[StoreSnapshot, CachedForecast]:
    """Returns a snapshot of the store, and a forecast. The forecast may be `before`, if that is recent
    enough."""
    began = (await store.read_clock()).boot
    if before is not None and began - before.at < CACHE_TIME_FACTOR * before.took:
        return await load_snapshot(store, demand=before.demand), before
    snapshot = await load_snapshot(store)
    found = await compute_forecasts(store, snapshot)
    ended = (await store.read_clock()).boot
    return snapshot, CachedForecast(demand=snapshot.demand, forecasts=found, at=ended, took=ended - began)
