"""Numbers of queues."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import msgspec

from tidemill.contract.reader import Backlog
from tidemill.contract.store import Store
from tidemill.core.states import State
from tidemill.inspect.draining import Drains, Forecast
from tidemill.inspect.situation import Situation
from tidemill.metrics import catalogue
from tidemill.metrics.catalogue import valued
from tidemill.tallies.families import Counted
from tidemill.tallies.totals import QueueTotal

_COUNTERS = {
    "done": catalogue.JOBS_DONE,
    "failed": catalogue.JOBS_FAILED,
    "cancelled": catalogue.JOBS_CANCELLED,
    "retried": catalogue.JOBS_RETRIED,
    "reclaimed": catalogue.JOBS_RECLAIMED,
    "dropped_early": catalogue.JOBS_DROPPED_EARLY,
}


async def of_queues(
    store: Store, situation: Situation, drains: Drains, ended: Mapping[str, QueueTotal]
) -> list[Counted]:
    names = [info.name for info in situation.queues]
    counts = await store.counts()
    backlogs = {name: await store.backlog(name) for name in names}
    states = {(name, state.value): counts.get(name, {}).get(state, 0) for name in names for state in State}
    ready = {name: counts.get(name, {}).get(State.READY, 0) for name in names}
    now = (await store.read_clock()).wall
    return [
        valued(catalogue.QUEUE_JOBS, states),
        valued(catalogue.QUEUE_LATENCY, {name: _latency(of, now) for name, of in backlogs.items()}),
        valued(catalogue.QUEUE_RETRYING, {name: of.retrying for name, of in backlogs.items()}),
        valued(catalogue.QUEUE_PAUSED, {name: situation.pause(name) is not None for name in names}),
        valued(catalogue.QUEUE_WORKERS, {name: len(situation.serving([name])) for name in names}),
        valued(catalogue.QUEUE_DRAIN, dict(until(drains.queues, ready, now))),
        *_counters({name: ended.get(name, QueueTotal()) for name in names}),
    ]


def _latency(backlog: Backlog, now: float) -> float:
    return 0.0 if backlog.oldest_ready is None else max(0.0, now - backlog.oldest_ready)


def _counters(ended: Mapping[str, QueueTotal]) -> Iterator[Counted]:
    of_queue = {name: msgspec.structs.asdict(of) for name, of in ended.items()}
    for field, family in _COUNTERS.items():
        yield valued(family, {name: of[field] for name, of in of_queue.items()})


def until(
    found: Mapping[str, Forecast], waiting: Mapping[str, int], now: float
) -> Iterator[tuple[str, float]]:
    """Seconds until what waits is done. Where something does and nobody can say, nothing is said."""
    for name, jobs in waiting.items():
        forecast = found.get(name)
        if not jobs:
            yield name, 0.0
        elif forecast is not None:
            yield name, math.inf if forecast.done_at is None else max(0.0, forecast.done_at - now)
