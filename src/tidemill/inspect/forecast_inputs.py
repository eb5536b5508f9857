"""Loads what a forecast needs (pools, demand, queues, workers) and turns demand into calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tidemill.contract.pools import PoolView
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import DEFAULT_SCAN_LIMIT, WorkerInfo
from tidemill.contract.store import Store
from tidemill.core.accounts import Account
from tidemill.core.batching import BatchPolicy
from tidemill.core.filters import Filter
from tidemill.core.forecast.backlog import CallGroup, Demand, LaneBacklog
from tidemill.core.forecast.completion import WorkerCapacity
from tidemill.core.forecast.pool_outlook import PoolOutlook, pool_outlook
from tidemill.core.needs import IMPLIED, Need, Units
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import DAY_SECONDS, Pause
from tidemill.core.states import State
from tidemill.core.windows import Instant

MAX_JOBS_AVERAGED = 100
"""The mean call time is computed over this many recently finished jobs."""
HISTORY_SPANS_SECONDS = (60.0, 3600.0, DAY_SECONDS, 30 * DAY_SECONDS)
"""The search starts with the shortest span, so that newer waiting jobs do not use up the scan limit."""


class StoreSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The pools, demand, queues and workers of a store, read for a forecast.

    - `demand`: the ready jobs that need pools or batches, per lane and priority.
    - `running`: the number of running jobs by queue name."""

    now: Instant
    pools: Sequence[PoolView]
    demand: Sequence[Demand]
    queues: Sequence[QueueInfo]
    workers: Sequence[WorkerInfo]
    running: dict[str, int]

    def known(self) -> PoolLookup:
        return PoolLookup(self)

    def weight(self, queue: str) -> float:
        return next((float(info.settings.weight) for info in self.queues if info.name == queue), 1.0)

    def pause(self, queue: str) -> Pause | None:
        """Returns the queue's pause; None if the queue is not paused now."""
        pauses = (info.pause for info in self.queues if info.name == queue)
        return next((pause for pause in pauses if pause is not None and pause.closed(self.now.wall)), None)

    def seconds_until_resumed(self, queue: str) -> float:
        """Returns the seconds until the queue's pause ends. 0 if the queue is not paused; infinite if the
        pause has no end."""
        pause = self.pause(queue)
        if pause is None:
            return 0.0
        return math.inf if pause.until is None else pause.until - self.now.wall

    def workers_of(self, queues: Sequence[str]) -> list[WorkerInfo]:
        return [worker for worker in self.workers if set(queues) & set(worker.queues)]

    def worker_capacity(self, queues: Sequence[str]) -> WorkerCapacity:
        """Returns the slots of the workers that serve at least one of `queues`, and each queue's concurrency
        limit.

        Without a worker the number of slots is None: unlimited."""
        workers = self.workers_of(queues)
        bounded = [info for info in self.queues if info.settings.concurrency is not None]
        return WorkerCapacity(
            slots=sum(worker.concurrency for worker in workers) or None,
            taken=sum(worker.holds for worker in workers),
            at_once={info.name: float(info.settings.concurrency or 0) for info in bounded},
            running={info.name: float(self.running.get(info.name, 0)) for info in bounded},
        )


class PoolLookup:
    """A callable that returns the state of a pool by name and key, from a cache; None if the pool is
    unknown."""

    def __init__(self, snapshot: StoreSnapshot) -> None:
        self._now = snapshot.now
        self._views = {(view.name, view.key): view for view in snapshot.pools}
        self._cache: dict[tuple[str, str | None], PoolOutlook | None] = {}

    def __call__(self, pool_key: tuple[str, str | None]) -> PoolOutlook | None:
        if pool_key not in self._cache:
            self._cache[pool_key] = self._find(pool_key)
        return self._cache[pool_key]

    def _find(self, pool_key: tuple[str, str | None]) -> PoolOutlook | None:
        if pool_key in self._views:
            return pool_outlook(self._views[pool_key], self._now)
        pool = self._views.get((pool_key[0], None))
        if pool is None:
            return None
        return pool_outlook(msgspec.structs.replace(pool, key=pool_key[1], account=Account()), self._now)


async def load_snapshot(
    store: Store,
    declared: Mapping[str, PoolSettings] | None = None,
    demand: Sequence[Demand] | None = None,
) -> StoreSnapshot:
    """Returns the pools, demand, queues and workers of the store.

    - `declared`: pools that are added as unused if the store does not know them.
    - `demand`: an older result of the slowest query, which is then skipped."""
    counts = await store.counts()
    reading = await store.read_clock()
    pools = await store.pools()
    known = {view.name for view in pools}
    pools += [unused_pool_view(name, pool) for name, pool in (declared or {}).items() if name not in known]
    return StoreSnapshot(
        now=Instant(reading.wall, reading.boot),
        pools=pools,
        demand=await store.demand() if demand is None else demand,
        queues=await store.queues(),
        workers=await store.workers(),
        running={queue: states.get(State.RUNNING, 0) for queue, states in counts.items()},
    )


def unused_pool_view(name: str, pool: PoolSettings) -> PoolView:
    return PoolView(
        name=name,
        key=None,
        declared=pool,
        override=None,
        key_override=None,
        limits=(),
        closures=(),
        closed=None,
        reservations=0,
        external_usage={},
        ramp=None,
        account=Account(),
    )


async def mean_job_seconds(store: Store, queue: str, task: str | None = None) -> float | None:
    """Returns the mean seconds that recently finished jobs of a queue took; with `task`, only jobs of this
    task. None if there are none."""
    now = (await store.read_clock()).wall
    for span in HISTORY_SPANS_SECONDS:
        job_filter = Filter(queue=queue, task=task, states=(State.DONE,), since=now - span, time="finished")
        done = (await store.find(job_filter, MAX_JOBS_AVERAGED, scan_limit=DEFAULT_SCAN_LIMIT)).jobs
        if done:
            break
    took = [max(0.0, job.finished - job.started) for job in done if job.finished and job.started]
    return sum(took) / len(took) if took else None


FindPool = Callable[[tuple[str, str | None]], PoolOutlook | None]


def estimate_calls(
    jobs: float, needs: tuple[Need, ...], batching: BatchPolicy | None, find_pool: FindPool
) -> CallGroup:
    """Returns how many calls `jobs` jobs make, and the units that each call needs. Jobs of a batch task share
    calls."""
    if batching is None:
        return CallGroup(jobs, needs)
    batch_size = _jobs_per_call(jobs, needs, batching, find_pool)
    calls = max(1.0, math.ceil(jobs / batch_size))
    return CallGroup(calls, _needs_of_call(needs, batching, jobs / calls))


def group_demand(snapshot: StoreSnapshot, demand: Iterable[Demand], find_pool: FindPool) -> list[LaneBacklog]:
    """Returns the waiting jobs as groups of calls. Lanes of one queue with the same pools, pool keys and
    priority share a group."""
    similar: dict[tuple[str, int, tuple[tuple[str, str | None], ...], bool], list[Demand]] = {}
    for part in demand:
        pool_keys = tuple((need.pool, need.key) for need in part.needs)
        similar.setdefault((part.queue, part.priority, pool_keys, part.batching is None), []).append(part)
    return [
        LaneBacklog(
            work=(
                _join_calls(
                    [estimate_calls(part.jobs, part.needs, part.batching, find_pool) for part in lanes]
                ),
            ),
            priority=priority,
            weight=snapshot.weight(queue) * len(lanes),
            queue=queue,
            opens=snapshot.seconds_until_resumed(queue),
        )
        for (queue, priority, _, _), lanes in similar.items()
    ]


def _join_calls(groups: Sequence[CallGroup]) -> CallGroup:
    """Returns one entry with all calls of `groups`; its units per call are the mean over all calls."""
    calls = sum(group.calls for group in groups)
    if len(groups) == 1:
        return groups[0]
    return CallGroup(
        calls,
        tuple(
            Need(need.pool, need.key, _mean_units([(group.calls, group.needs[at].units) for group in groups]))
            for at, need in enumerate(groups[0].needs)
        ),
    )


def _mean_units(weighted: Sequence[tuple[float, Units]]) -> Units:
    total: Units = {}
    for calls, units in weighted:
        for unit, amount in (IMPLIED | units).items():
            total[unit] = total.get(unit, 0.0) + calls * amount
    calls = sum(calls for calls, _ in weighted)
    return {unit: amount / calls for unit, amount in total.items()}


def _jobs_per_call(jobs: float, needs: tuple[Need, ...], batching: BatchPolicy, find_pool: FindPool) -> float:
    """Returns how many jobs one call of a batch can contain."""
    most = min(float(batching.max_items), jobs)
    for need in needs:
        for unit, amount in need.units.items():
            if amount > 0 and unit in batching.max_units:
                most = min(most, math.floor(batching.max_units[unit] / amount + 1e-9))
        known = find_pool((need.pool, need.key))
        for limit in () if known is None else known.settings.limits:
            added = need.units.get(limit.unit, 0.0)
            if known is not None and added > 0:
                call = batching.call.get(need.pool, {}).get(limit.unit, 0.0)
                most = min(most, math.floor((known.settings.most(limit) - call) / added + 1e-9))
    return max(1.0, most)


def _needs_of_call(needs: tuple[Need, ...], batching: BatchPolicy, batch_size: float) -> tuple[Need, ...]:
    call_needs = []
    for need in needs:
        units = dict(batching.call.get(need.pool, {}))
        for unit, amount in need.units.items():
            units[unit] = units.get(unit, 0.0) + batch_size * amount
        call_needs.append(Need(need.pool, need.key, units))
    return tuple(call_needs)
