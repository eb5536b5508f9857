"""API routes about the system: health, readiness, metrics, overview, history and workers."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Literal

import msgspec

from tidemill.contract.reader import QueueMinute, WorkerInfo
from tidemill.errors import StoreError
from tidemill.http_routes.routes import Role, Route, TextResponse
from tidemill.inspect.views import Overview
from tidemill.metrics import CONTENT_TYPE
from tidemill.web.api.queues import HistoryQuery, history_start
from tidemill.web.api.schemas import ResponseBody
from tidemill.web.request import RouteRequest


async def check_health(_: RouteRequest) -> TextResponse:
    """Answers as long as the process runs."""
    return TextResponse("ok\n")


async def check_readiness(request: RouteRequest) -> TextResponse:
    """Answers `ok` if the store can be reached, else status 503. The response has no details, because it is
    public."""
    try:
        await (await request.app.client.store_for_reading()).read_clock()
    except StoreError:
        return TextResponse("not ready\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
    return TextResponse("ok\n")


HEALTH_ROUTES = (
    Route(
        method="GET",
        path="/healthz",
        role=Role.PUBLIC,
        handler=check_health,
        summary="Whether the process answers.",
    ),
    Route(
        method="GET",
        path="/readyz",
        role=Role.PUBLIC,
        handler=check_readiness,
        summary="Whether the process reaches its store.",
    ),
)


async def get_metrics(request: RouteRequest) -> TextResponse:
    return TextResponse(await request.app.exposition(), media_type=CONTENT_TYPE)


METRICS_ROUTES = (
    Route(
        method="GET",
        path="/metrics",
        role=Role.VIEWER,
        handler=get_metrics,
        summary="All metrics in the Prometheus text format.",
    ),
)


_COUNTED_FIELDS = tuple(name for name in QueueMinute.__struct_fields__ if name != "at")


async def get_overview(request: RouteRequest) -> Overview:
    return await request.inspect.overview(cached=True)


async def get_history(request: RouteRequest) -> list[QueueMinute]:
    since, store = await history_start(request), await request.app.client.store()
    return sum_minutes([await store.history(queue.name, since) for queue in await store.queues()])


def sum_minutes(queues: Iterable[Iterable[QueueMinute]]) -> list[QueueMinute]:
    """Returns the history of all queues together: one entry per minute, oldest first. `queues` has the
    minutes of each queue."""
    found: dict[float, QueueMinute] = {}
    for minutes in queues:
        for minute in minutes:
            before = found.get(minute.at)
            found[minute.at] = minute if before is None else _add_minutes(before, minute)
    return [found[at] for at in sorted(found)]


def _add_minutes(minute: QueueMinute, other: QueueMinute) -> QueueMinute:
    both = {name: getattr(minute, name) + getattr(other, name) for name in _COUNTED_FIELDS}
    return msgspec.structs.replace(minute, **both)


STATS_ROUTES = (
    Route(
        method="GET",
        path="/api/v1/stats",
        role=Role.VIEWER,
        handler=get_overview,
        summary="Overview of queues, pools, workers and the store.",
        response=Overview,
    ),
    Route(
        method="GET",
        path="/api/v1/stats/history",
        role=Role.VIEWER,
        handler=get_history,
        summary="Jobs of all queues by outcome per minute; minutes without any are left out.",
        query=HistoryQuery,
        response=list[QueueMinute],
    ),
)


class WorkerStatus(ResponseBody, frozen=True, kw_only=True):
    """The state of all workers together. `status` is `running` if at least one worker is alive. `concurrency`
    is how many jobs all workers can run at once."""

    status: Literal["running", "stopped"]
    concurrency: int


async def list_workers(request: RouteRequest) -> list[WorkerInfo]:
    return await request.inspect.workers()


async def get_worker_status(request: RouteRequest) -> WorkerStatus:
    alive = await request.inspect.workers()
    return WorkerStatus(
        status="running" if alive else "stopped", concurrency=sum(worker.concurrency for worker in alive)
    )


WORKER_ROUTES = (
    Route(
        method="GET",
        path="/api/v1/workers",
        role=Role.VIEWER,
        handler=list_workers,
        summary="All live workers.",
        response=list[WorkerInfo],
    ),
    Route(
        method="GET",
        path="/api/v1/worker",
        role=Role.VIEWER,
        handler=get_worker_status,
        summary="Whether any worker is alive, and how many jobs they run at once.",
        response=WorkerStatus,
    ),
)

ROUTES = (*HEALTH_ROUTES, *METRICS_ROUTES, *STATS_ROUTES, *WORKER_ROUTES)
