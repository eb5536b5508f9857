"""The overview page with its warnings, and the workers page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import msgspec

from tidemill.contract.pools import LimitView
from tidemill.contract.reader import QueueMinute
from tidemill.core.states import State
from tidemill.http_routes.routes import PageResponse, Role, Route
from tidemill.inspect.inspector import Inspector
from tidemill.inspect.pools import PoolStatus
from tidemill.inspect.views import Overview, QueueView
from tidemill.web.request import RouteRequest

HOUR_SECONDS, MINUTE_SECONDS = 3600.0, 60.0
LONG_WAIT_SECONDS = 600.0
"""A longer wait causes a warning, unless the queue is paused."""
MAX_POOLS_SHOWN = 12
"""The fullest pools; the pools page has all."""

WarningKind = Literal["store", "no_worker", "tripped", "closed", "paused", "failed", "late", "dropped"]


class OverviewWarning(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that needs attention.

    - `kind`: the condition, such as "paused" or "no_worker"; "tripped" means that the breaker closed a pool
    - `name`, `key`: the queue or pool, and the key of a keyed pool
    - `count`: the number of jobs that the condition affects
    - `at`: the Unix time at which a pause or closure ends; for "late", when the oldest ready job began to
      wait
    - `text`: the reason of a pause or closure; for "store", the warning of the store"""

    kind: WarningKind
    name: str = ""
    key: str | None = None
    count: int = 0
    at: float | None = None
    text: str | None = None

    @property
    def is_critical(self) -> bool:
        return self.kind in {"store", "no_worker", "tripped"}


class QueueThroughput(msgspec.Struct, frozen=True):
    """The throughput of a queue in the last hour.

    - `ended`: the number of done and failed jobs of each minute, oldest first
    - `failed`: the total number of failed jobs"""

    ended: tuple[int, ...]
    failed: int


async def overview_page(request: RouteRequest) -> PageResponse:
    overview = await request.inspect.overview(cached=True)
    throughput = {
        queue.name: await queue_throughput(request.inspect, queue.name, overview.now)
        for queue in overview.queues
    }
    pools = sorted(overview.pools, key=lambda pool: (pool.is_open, -highest_usage(pool.limits)))
    context = {
        "overview": overview,
        "throughput": throughput,
        "warnings": sorted(collect_warnings(overview), key=lambda warning: not warning.is_critical),
        "pools": pools[:MAX_POOLS_SHOWN],
        "more_pools": max(0, len(pools) - MAX_POOLS_SHOWN),
        "highest_usage": highest_usage,
        "largest": max((queue.size for queue in overview.queues), default=0),
        "counts": {state: sum(queue.counts[state] for queue in overview.queues) for state in State},
        "ended": [
            sum(minute) for minute in zip(*(queue.ended for queue in throughput.values()), strict=True)
        ],
    }
    return PageResponse("overview.html", context, live=("counts", "warnings", "queues", "pools", "workers"))


async def queue_throughput(inspect: Inspector, queue: str, now: float) -> QueueThroughput:
    """Returns the throughput of a queue in the hour before `now`, a Unix time. `ended` has 60 whole minutes,
    without the current minute."""
    current_minute = now // MINUTE_SECONDS * MINUTE_SECONDS
    minutes = await inspect.history(queue, current_minute - HOUR_SECONDS)
    by_minute = {minute.at: minute for minute in minutes if minute.at < current_minute}
    ended = [_ended_count(by_minute.get(current_minute - MINUTE_SECONDS * back)) for back in range(60, 0, -1)]
    return QueueThroughput(tuple(ended), sum(minute.failed for minute in minutes))


def _ended_count(minute: QueueMinute | None) -> int:
    return 0 if minute is None else minute.done + minute.failed


def highest_usage(limits: Sequence[LimitView]) -> float:
    """Returns the used share of the fullest limit: 1.0 if it is full, 0.0 if there are no limits."""
    return max((limit.used / limit.amount for limit in limits), default=0.0)


def collect_warnings(overview: Overview) -> Iterator[OverviewWarning]:
    for warning in overview.store.warnings:
        yield OverviewWarning(kind="store", text=warning)
    for queue in overview.queues:
        yield from _queue_warnings(queue, overview.now)
    for pool in overview.pools:
        yield from _pool_warnings(pool)


def _pool_warnings(pool: PoolStatus) -> Iterator[OverviewWarning]:
    pool_warning = partial(OverviewWarning, name=pool.name, key=pool.key)
    if pool.closed is not None:
        yield pool_warning(kind="closed", at=pool.closed.until, text=pool.closed.reason)
    for closure in pool.closures:
        yield pool_warning(kind="tripped", at=closure.until, text=closure.text or closure.reason)


def _queue_warnings(queue: QueueView, now: float) -> Iterator[OverviewWarning]:
    ready = queue.counts[State.READY]
    if ready and not queue.workers:
        yield OverviewWarning(kind="no_worker", name=queue.name, count=ready)
    elif queue.pause is not None:
        yield OverviewWarning(kind="paused", name=queue.name, at=queue.pause.until, text=queue.pause.reason)
    elif queue.latency is not None and queue.latency > LONG_WAIT_SECONDS:
        yield OverviewWarning(kind="late", name=queue.name, count=ready, at=now - queue.latency)
    if failed := queue.counts[State.FAILED]:
        yield OverviewWarning(kind="failed", name=queue.name, count=failed)
    if queue.dropped_early:
        yield OverviewWarning(kind="dropped", name=queue.name, count=queue.dropped_early)


OVERVIEW_ROUTES = (
    Route(
        method="GET",
        path="/",
        role=Role.VIEWER,
        handler=overview_page,
        summary="Overview of queues, pools, workers and the store.",
    ),
)


async def workers_page(request: RouteRequest) -> PageResponse:
    workers = sorted(await request.inspect.workers(), key=lambda worker: (worker.host, worker.pid, worker.id))
    return PageResponse("workers.html", {"workers": workers}, live=("workers",))


WORKERS_ROUTES = (
    Route(
        method="GET",
        path="/workers",
        role=Role.VIEWER,
        handler=workers_page,
        summary="Live workers.",
    ),
)

ROUTES = (*OVERVIEW_ROUTES, *WORKERS_ROUTES)
