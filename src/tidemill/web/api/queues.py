"""API routes for queues: status, history, pause, settings overrides, empty."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidemill.contract.reader import QueueMinute
from tidemill.core.queues import DAY_SECONDS
from tidemill.http_routes.routes import Role, Route
from tidemill.inspect.views import QueueView
from tidemill.web.api.schemas import (
    NonNegativeInt,
    QueryParameters,
    RequestBody,
    ResponseBody,
    Seconds,
    Sentence,
    Time,
    override_arguments,
)
from tidemill.web.request import RouteRequest

QueueSettingName = Literal[
    "weight",
    "concurrency",
    "key_concurrency",
    "max_length",
    "crash_limit",
    "keep_done",
    "keep_failed",
    "keep_cancelled",
]
PositiveInt = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class PauseBody(RequestBody, frozen=True, kw_only=True):
    """A request to pause a queue or schedule until the time `until`. Without `until` the pause lasts until an
    operator ends it."""

    until: Time | None = None
    reason: Sentence | None = None


class RetentionBody(RequestBody, frozen=True, kw_only=True):
    """How long finished jobs are kept. `age` is the maximum age in seconds, `count` the maximum number of
    jobs; null means no bound."""

    age: Seconds | None = None
    count: NonNegativeInt | None = None


class QueueSettingsBody(RequestBody, frozen=True, kw_only=True):
    """An override of the settings of a queue. It is merged with an existing override.

    `until` is the end of the whole override. If it is missing, the present end stays; null removes the
    end."""

    weight: PositiveInt | UnsetType = UNSET
    concurrency: PositiveInt | UnsetType | None = UNSET
    key_concurrency: PositiveInt | UnsetType | None = UNSET
    max_length: PositiveInt | UnsetType | None = UNSET
    crash_limit: PositiveInt | UnsetType = UNSET
    keep_done: RetentionBody | UnsetType = UNSET
    keep_failed: RetentionBody | UnsetType = UNSET
    keep_cancelled: RetentionBody | UnsetType = UNSET
    reason: Sentence | None = None
    until: Time | UnsetType | None = UNSET


class QueueSettingNamesQuery(QueryParameters, frozen=True, kw_only=True):
    """The names of the settings whose override is removed. Without names, the override of all settings is
    removed."""

    names: list[QueueSettingName] = msgspec.field(default_factory=list, name="name")


class EmptyQueueBody(RequestBody, frozen=True, kw_only=True):
    """The confirmation for deleting all jobs of a queue that are not running. `confirm` must be the name of
    the queue."""

    confirm: str


class EmptyQueueResponse(ResponseBody, frozen=True, kw_only=True):
    queue: str
    deleted: int


class HistoryQuery(QueryParameters, frozen=True, kw_only=True):
    """The start of the requested history, by default 24 hours ago. The store keeps the history of the last
    eight days."""

    since: Time | None = None


async def list_queues(request: RouteRequest) -> list[QueueView]:
    return await request.inspect.queues(cached=True)


async def get_queue(request: RouteRequest) -> QueueView:
    return await request.inspect.queue(request.path["queue"], cached=True)


async def pause_queue(request: RouteRequest) -> QueueView:
    await request.inspect.pause(request.path["queue"], until=request.body.until, reason=request.body.reason)
    return await get_queue(request)


async def resume_queue(request: RouteRequest) -> QueueView:
    await request.inspect.resume(request.path["queue"])
    return await get_queue(request)


async def override_queue(request: RouteRequest) -> QueueView:
    return await request.inspect.override(request.path["queue"], **override_arguments(request))


async def clear_queue_override(request: RouteRequest) -> QueueView:
    return await request.inspect.clear_override(request.path["queue"], *request.query.names)


async def empty_queue(request: RouteRequest) -> EmptyQueueResponse:
    queue = request.path["queue"]
    return EmptyQueueResponse(
        queue=queue, deleted=await request.inspect.empty(queue, confirm=request.body.confirm)
    )


async def get_queue_history(request: RouteRequest) -> list[QueueMinute]:
    return await request.inspect.history(request.path["queue"], await history_start(request))


async def history_start(request: RouteRequest) -> float:
    since: float | None = request.query.since
    if since is not None:
        return since
    return await request.store_now() - DAY_SECONDS


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/queues",
        role=Role.VIEWER,
        handler=list_queues,
        summary="All queues that were declared or have had a job.",
        response=list[QueueView],
    ),
    Route(
        method="GET",
        path="/api/v1/queues/{queue}",
        role=Role.VIEWER,
        handler=get_queue,
        summary="One queue: counts, throughput and settings.",
        response=QueueView,
    ),
    Route(
        method="POST",
        path="/api/v1/queues/{queue}/pause",
        role=Role.OPERATOR,
        handler=pause_queue,
        summary="Pause the queue until a time, or until it is resumed. Running jobs finish.",
        body=Annotated[
            PauseBody, Meta(examples=[{"until": 1_790_000_000, "reason": "the provider is down"}])
        ],
        response=QueueView,
    ),
    Route(
        method="POST",
        path="/api/v1/queues/{queue}/resume",
        role=Role.OPERATOR,
        handler=resume_queue,
        summary="Resume the queue; does nothing if it is not paused.",
        response=QueueView,
    ),
    Route(
        method="PATCH",
        path="/api/v1/queues/{queue}/settings",
        role=Role.ADMIN,
        handler=override_queue,
        summary="Override declared settings; the override survives deployments.",
        body=Annotated[QueueSettingsBody, Meta(examples=[{"concurrency": 5, "reason": "month's end"}])],
        response=QueueView,
    ),
    Route(
        method="DELETE",
        path="/api/v1/queues/{queue}/settings",
        role=Role.ADMIN,
        handler=clear_queue_override,
        summary="Remove the override of the named settings; without names, of all.",
        query=QueueSettingNamesQuery,
        response=QueueView,
    ),
    Route(
        method="POST",
        path="/api/v1/queues/{queue}/empty",
        role=Role.ADMIN,
        handler=empty_queue,
        summary="Delete every job of the queue that is not running; `confirm` repeats its name.",
        body=EmptyQueueBody,
        response=EmptyQueueResponse,
    ),
    Route(
        method="GET",
        path="/api/v1/queues/{queue}/history",
        role=Role.VIEWER,
        handler=get_queue_history,
        summary="Jobs of the queue by outcome per minute; minutes without any are left out.",
        query=HistoryQuery,
        response=list[QueueMinute],
    ),
)
