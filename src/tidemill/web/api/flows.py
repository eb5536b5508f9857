"""API routes for flows: find, show, cancel, retry."""

from __future__ import annotations

from http import HTTPStatus

from msgspec import field

from tidemill.core.flow_progress import FlowState
from tidemill.flows.views import FlowView
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import Role, Route
from tidemill.inspect.flows import FlowPage
from tidemill.web.api.jobs import ReasonBody
from tidemill.web.api.schemas import Limit, Name, QueryParameters, TextCursor
from tidemill.web.request import RouteRequest


class FlowQuery(QueryParameters, frozen=True, kw_only=True):
    name: Name | None = None
    states: list[FlowState] | None = field(default=None, name="state")
    limit: Limit = 100
    cursor: TextCursor | None = None


async def find_flows(request: RouteRequest) -> FlowPage:
    query: FlowQuery = request.query
    return await request.inspect.flows(
        name=query.name, states=query.states, limit=query.limit, cursor=query.cursor
    )


async def get_flow(request: RouteRequest) -> FlowView:
    return await request.inspect.flow(request.path["flow"])


async def cancel_flow(request: RouteRequest) -> FlowView:
    flow = request.path["flow"]
    reason = request.body.reason or f"cancelled by {request.user.name}"
    if not await request.inspect.cancel_flow(flow, reason=reason):
        raise HTTPError(
            HTTPStatus.CONFLICT, f"flow {flow!r} has ended, and cannot be cancelled; look at its state"
        )
    return await get_flow(request)


async def retry_flow(request: RouteRequest) -> FlowView:
    flow = request.path["flow"]
    if not await request.inspect.retry_flow(flow):
        raise HTTPError(
            HTTPStatus.CONFLICT,
            f"flow {flow!r} has not failed: only one that failed or was cancelled is retried",
        )
    return await get_flow(request)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/flows",
        role=Role.VIEWER,
        handler=find_flows,
        summary="Find flows, newest first.",
        query=FlowQuery,
        response=FlowPage,
    ),
    Route(
        method="GET",
        path="/api/v1/flows/{flow}",
        role=Role.VIEWER,
        handler=get_flow,
        summary="One flow with its steps, and the steps that each waits for.",
        response=FlowView,
    ),
    Route(
        method="POST",
        path="/api/v1/flows/{flow}/cancel",
        role=Role.OPERATOR,
        handler=cancel_flow,
        summary="Cancel the flow and its jobs; no further step starts.",
        body=ReasonBody,
        response=FlowView,
    ),
    Route(
        method="POST",
        path="/api/v1/flows/{flow}/retry",
        role=Role.OPERATOR,
        handler=retry_flow,
        summary="Retry the failed and cancelled steps; finished steps are not repeated.",
        response=FlowView,
    ),
)
