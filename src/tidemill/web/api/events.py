"""The API route that streams changes. Each event contains the complete job, flow, queue or overview after the
change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tidemill.http_routes.routes import EventStream, Role, Route
from tidemill.inspect.queues import require_queue
from tidemill.web.api import flows, jobs, queues, status
from tidemill.web.api.schemas import Name, QueryParameters
from tidemill.web.request import RouteRequest


class EventQuery(QueryParameters, frozen=True, kw_only=True):
    """The objects to follow: at most one job, one flow and one queue. If none is given, the stream sends the
    overview of the whole store."""

    job: Name | None = None
    flow: Name | None = None
    queue: Name | None = None


LoadValue = Callable[[RouteRequest], Awaitable[Any]]

_LOADERS: dict[str, LoadValue] = {"job": jobs.get_job, "flow": flows.get_flow, "queue": queues.get_queue}


async def stream_events(request: RouteRequest) -> EventStream:
    """Streams the requested objects, or the overview, as they change. An unknown name raises an error."""
    watched = {
        name: watched_name for name in _LOADERS if (watched_name := getattr(request.query, name)) is not None
    }
    anonymous = _anonymous_request(request, watched)

    async def load() -> dict[str, str]:
        if not watched:
            return {"overview": _encode_json(await status.get_overview(anonymous))}
        return {name: _encode_json(await _LOADERS[name](anonymous)) for name in watched}

    await _require_existing(request, watched)
    watched_name = ("events", *sorted(watched.items()))
    return EventStream(request.live_views.watch(watched_name, load, request.headers.get("last-event-id")))


async def _require_existing(request: RouteRequest, watched: dict[str, str]) -> None:
    if "job" in watched:
        await request.inspect.job(watched["job"])
    if "flow" in watched:
        await request.inspect.flow(watched["flow"])
    if "queue" in watched:
        await require_queue(await request.app.client.store(), watched["queue"])


def _anonymous_request(request: RouteRequest, watched: dict[str, str]) -> RouteRequest:
    """Returns a copy of the request without its user and headers, because all viewers share one response.
    `watched`: the path parameters of the copy, such as `{"job": ID}`."""
    return RouteRequest(app=request.app, inspect=request.inspect, live_views=request.live_views, path=watched)


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/events",
        role=Role.VIEWER,
        handler=stream_events,
        summary="Server-sent events named overview, queue, job and flow. Each has the value of the route of "
        "that name; it is sent at once and after every change. A client that reconnects with Last-Event-ID "
        "and has the newest value receives nothing.",
        query=EventQuery,
        response=EventStream,
        headers={"Last-Event-ID": "The id of the last event that was seen."},
    ),
)
