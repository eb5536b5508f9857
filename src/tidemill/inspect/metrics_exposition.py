"""Builds the text of /metrics: queues, pools, workers, the store, and the counters of all processes."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from tidemill.contract.reader import Backlog
from tidemill.contract.store import Store, StoreFacts
from tidemill.core.documents import DocumentKind
from tidemill.core.flow_progress import FlowState
from tidemill.core.pool_statistics import PoolHistoryEntry
from tidemill.core.states import State
from tidemill.errors import ConfigurationError
from tidemill.inspect.forecast import CachedForecast, Forecast, Forecasts, load_forecast
from tidemill.inspect.forecast_inputs import StoreSnapshot
from tidemill.inspect.pools import PoolStatus, pool_statuses
from tidemill.metrics import catalogue
from tidemill.metrics.catalogue import samples_of
from tidemill.metrics.families import (
    LabelValues,
    MetricFamily,
    MetricSamples,
    SampleValues,
    add_samples,
    render_text,
)
from tidemill.metrics.instruments import (
    MAX_SERIES_PER_METRIC,
    RESERVED_PREFIX,
    Counter,
    Gauge,
    GaugeValue,
    Histogram,
    Instrument,
)
from tidemill.metrics.rollup import QueueTotal, load_samples, load_totals
from tidemill.metrics.snapshots import SnapshotWriter
from tidemill.schedules.schedule import ScheduleState

_QUEUE_COUNTERS = {
    "done": catalogue.JOBS_DONE,
    "failed": catalogue.JOBS_FAILED,
    "cancelled": catalogue.JOBS_CANCELLED,
    "retried": catalogue.JOBS_RETRIED,
    "reclaimed": catalogue.JOBS_RECLAIMED,
    "dropped_early": catalogue.JOBS_DROPPED_EARLY,
}


async def queue_metrics(
    store: Store, snapshot: StoreSnapshot, forecasts: Forecasts, ended: Mapping[str, QueueTotal]
) -> list[MetricSamples]:
    names = [info.name for info in snapshot.queues]
    counts = await store.counts()
    backlogs = {name: await store.backlog(name) for name in names}
    states = {(name, state.value): counts.get(name, {}).get(state, 0) for name in names for state in State}
    ready = {name: counts.get(name, {}).get(State.READY, 0) for name in names}
    now = (await store.read_clock()).wall
    return [
        samples_of(catalogue.QUEUE_JOBS, states),
        samples_of(
            catalogue.QUEUE_LATENCY, {name: _queue_latency(values, now) for name, values in backlogs.items()}
        ),
        samples_of(catalogue.QUEUE_RETRYING, {name: values.retrying for name, values in backlogs.items()}),
        samples_of(catalogue.QUEUE_PAUSED, {name: snapshot.pause(name) is not None for name in names}),
        samples_of(catalogue.QUEUE_WORKERS, {name: len(snapshot.workers_of([name])) for name in names}),
        samples_of(catalogue.QUEUE_DRAIN, dict(drain_seconds(forecasts.queues, ready, now))),
        *_queue_counters({name: ended.get(name, QueueTotal()) for name in names}),
    ]


def _queue_latency(backlog: Backlog, now: float) -> float:
    return 0.0 if backlog.oldest_ready is None else max(0.0, now - backlog.oldest_ready)


def _queue_counters(ended: Mapping[str, QueueTotal]) -> Iterator[MetricSamples]:
    fields = {name: msgspec.structs.asdict(values) for name, values in ended.items()}
    for field, family in _QUEUE_COUNTERS.items():
        yield samples_of(family, {name: values[field] for name, values in fields.items()})


def drain_seconds(
    found: Mapping[str, Forecast], waiting: Mapping[str, int], now: float
) -> Iterator[tuple[str, float]]:
    """Yields each name in `waiting` with the seconds until its waiting jobs are done. `found` has the
    forecasts.

    0 if no job waits now; infinite if the jobs will never be done. Names without a forecast are left out."""
    for name, jobs in waiting.items():
        forecast = found.get(name)
        if not jobs:
            yield name, 0.0
        elif forecast is not None:
            yield name, math.inf if forecast.done_at is None else max(0.0, forecast.done_at - now)


LimitValues = dict[tuple[str, str], float]


def pool_metrics(
    pools: Sequence[PoolStatus], forecasts: Forecasts, spent: Mapping[str, PoolHistoryEntry], now: float
) -> list[MetricSamples]:
    whole_pools = [pool for pool in pools if pool.key is None]
    keys: dict[str, list[PoolStatus]] = {pool.name: [] for pool in whole_pools}
    for pool in pools:
        if pool.key is not None:
            keys[pool.name].append(pool)
    keyed = {pool.name: keys[pool.name] for pool in whole_pools if pool.keyed}
    waiting = {pool.name: pool.waiting for pool in whole_pools}
    found = {name: forecast for (name, key), forecast in forecasts.pools.items() if key is None}
    return [
        samples_of(catalogue.POOL_OPEN, {pool.name: pool.is_open for pool in whole_pools}),
        *_limit_metrics(whole_pools, keys),
        samples_of(
            catalogue.POOL_RESERVATIONS,
            {
                pool.name: sum(account.reservations for account in (pool, *keys[pool.name]))
                for pool in whole_pools
            },
        ),
        samples_of(catalogue.POOL_WAITING, waiting),
        samples_of(catalogue.POOL_KEYS, {name: len(values) for name, values in keyed.items()}),
        samples_of(
            catalogue.POOL_CLOSED_KEYS,
            {name: sum(not key.is_open for key in values) for name, values in keyed.items()},
        ),
        samples_of(catalogue.POOL_DRAIN, dict(drain_seconds(found, waiting, now))),
        *_pool_counters({pool.name: spent.get(pool.name, PoolHistoryEntry()) for pool in whole_pools}),
    ]


def _limit_metrics(
    whole_pools: Sequence[PoolStatus], keys: Mapping[str, Sequence[PoolStatus]]
) -> list[MetricSamples]:
    amount: LimitValues = {}
    used: LimitValues = {}
    share: LimitValues = {}
    for pool in whole_pools:
        for limit in (limit for account in (pool, *keys[pool.name]) for limit in account.limits):
            key = (pool.name, limit.name)
            amount[key] = limit.amount
            used[key] = max(used.get(key, 0.0), limit.used)
            share[key] = max(share.get(key, 0.0), _used_ratio(limit.used, limit.amount))
    return [
        samples_of(catalogue.POOL_LIMIT, amount),
        samples_of(catalogue.POOL_LIMIT_USED, used),
        samples_of(catalogue.POOL_LIMIT_USED_RATIO, share),
    ]


def _used_ratio(used: float, amount: float) -> float:
    """Returns the used share of a limit. A limit of 0 counts as fully used."""
    return used / amount if amount else 1.0


def _pool_counters(spent: Mapping[str, PoolHistoryEntry]) -> list[MetricSamples]:
    calls = {name: entry.calls for name, entry in spent.items()}
    units = {(name, unit): used for name, entry in spent.items() for unit, used in entry.units.items()}
    refusals = {(name, why): times for name, entry in spent.items() for why, times in entry.refusals.items()}
    return [
        samples_of(catalogue.POOL_CALLS, calls),
        samples_of(catalogue.POOL_UNITS, units),
        samples_of(catalogue.POOL_REFUSALS, refusals),
    ]


async def worker_and_store_metrics(store: Store, snapshot: StoreSnapshot) -> list[MetricSamples]:
    workers = snapshot.workers
    flows = await store.document_counts(DocumentKind.FLOW)
    schedules = await store.document_counts(DocumentKind.SCHEDULE)
    return [
        _single_sample(catalogue.WORKERS, len(workers)),
        _single_sample(catalogue.WORKER_SLOTS, sum(worker.concurrency for worker in workers)),
        _single_sample(catalogue.WORKER_CLAIMED_JOBS, sum(worker.holds for worker in workers)),
        samples_of(catalogue.FLOWS, {state.value: flows.get(state.value, 0) for state in FlowState}),
        samples_of(
            catalogue.SCHEDULES, {state.value: schedules.get(state.value, 0) for state in ScheduleState}
        ),
        *_store_metrics(await store.describe()),
    ]


def _store_metrics(facts: StoreFacts) -> list[MetricSamples]:
    return [
        _single_sample(catalogue.STORE_BYTES, facts.bytes),
        _single_sample(catalogue.STORE_FREE, facts.free_bytes),
        _single_sample(catalogue.STORE_WARNINGS, len(facts.warnings)),
        samples_of(catalogue.STORE_INFO, {(facts.kind, facts.engine): 1}),
    ]


def _single_sample(family: MetricFamily, value: float | None) -> MetricSamples:
    return samples_of(family, {} if value is None else {(): value})


GAUGE_READ_TIMEOUT_SECONDS = 5.0
"""Timeout for a gauge function of the application, because the whole scrape waits for it."""


async def process_metrics(store: Store, snapshot_writer: SnapshotWriter | None) -> list[MetricSamples]:
    """Returns the stored counters of all processes, and the application's gauges read now. Tidemill's own
    metrics come first."""
    # No unstored counts of this process: a counter could fall when another process answers a scrape.
    stored = (await load_samples(store)).values()
    if snapshot_writer is None:
        return list(stored)
    gauges = (metric for metric in snapshot_writer.instruments if isinstance(metric, Gauge))
    read, unreadable = await _read_gauges(gauges)
    found = [
        *add_samples(stored, _zero_samples(snapshot_writer.instruments), read).values(),
        samples_of(catalogue.METRIC_READ_FAILED, unreadable),
    ]
    return sorted(found, key=lambda instrument: not instrument.family.name.startswith(RESERVED_PREFIX))


def _zero_samples(instruments: Iterable[Instrument]) -> Iterator[MetricSamples]:
    """Yields a zero value for each counter and histogram without labels. So the metric exists before its
    first count, and a rate can be computed from the start."""
    for instrument in instruments:
        if isinstance(instrument, Counter | Histogram) and not instrument.family.labels:
            yield MetricSamples(instrument.family, (((), instrument.fresh),))


async def _read_gauges(gauges: Iterable[Gauge]) -> tuple[list[MetricSamples], dict[str, float]]:
    """Returns the values of the application's gauges, and a dict that maps each unreadable gauge to 1."""
    found: list[MetricSamples] = []
    unreadable: dict[str, float] = {}
    for gauge in gauges:
        if gauge.read is None:
            continue
        try:
            answer = gauge.read()
            async with asyncio.timeout(GAUGE_READ_TIMEOUT_SECONDS):
                value = await answer if inspect.isawaitable(answer) else answer
            found.append(MetricSamples(gauge.family, _gauge_series(gauge, value)))
        except Exception:  # noqa: BLE001 - any failure is reported as a metric
            unreadable[gauge.family.name] = 1
    return found, unreadable


def _gauge_series(gauge: Gauge, value: GaugeValue) -> tuple[tuple[LabelValues, SampleValues], ...]:
    values: Mapping[LabelValues, float] = value if isinstance(value, Mapping) else {(): value}
    label_count = len(gauge.family.labels)
    if any(len(labels) != label_count for labels in values):
        raise ConfigurationError(
            f"metric {gauge.family.name!r}: must answer {label_count} values of labels each"
        )
    series = list(values.items())[:MAX_SERIES_PER_METRIC]
    return tuple((tuple(map(str, labels)), (float(of),)) for labels, of in series)


SLOW_FORECAST_SECONDS = 0.2
"""A forecast that took longer is cached: with thousands of lanes every scrape would take as long."""


class Exposition:
    """Renders the text of /metrics. A forecast is reused for ten times as long as its computation took.

    `snapshot_writer` has the instruments of this process."""

    def __init__(self, snapshot_writer: SnapshotWriter | None = None) -> None:
        self._snapshot_writer = snapshot_writer
        self._forecast: CachedForecast | None = None

    async def text(self, store: Store) -> str:
        snapshot, cached = await load_forecast(store, self._forecast)
        self._forecast = cached if cached.took > SLOW_FORECAST_SECONDS else None
        pools = pool_statuses(snapshot, cached.forecasts)
        ended = await load_totals(
            store, [info.name for info in snapshot.queues], sorted({pool.name for pool in pools})
        )
        return render_text(
            [
                *await queue_metrics(store, snapshot, cached.forecasts, ended.queues),
                *pool_metrics(pools, cached.forecasts, ended.pools, snapshot.now.wall),
                *await worker_and_store_metrics(store, snapshot),
                *await process_metrics(store, self._snapshot_writer),
            ]
        )


async def render_metrics(store: Store, snapshot_writer: SnapshotWriter | None = None) -> str:
    return await Exposition(snapshot_writer).text(store)
