"""Flows: graphs of jobs."""

from __future__ import annotations

from http import HTTPStatus

from msgspec import field

from tidemill.core.graph_state import FlowState
from tidemill.flows.views import FlowView
from tidemill.inspect.flows import FlowPage
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import Limit, Name, Query, TextCursor
from tidemill.web.api.job_changes import Why
from tidemill.web.asked import Asked


class FindFlows(Query, frozen=True, kw_only=True):
    name: Name | None = None
    states: list[FlowState] | None = field(default=None, name="state")
    limit: Limit = 100
    cursor: TextCursor | None = None


async def find(asked: Asked) -> FlowPage:
    said: FindFlows = asked.query
    return await asked.inspect.flows(name=said.name, states=said.states, limit=said.limit, cursor=said.cursor)


async def get(asked: Asked) -> FlowView:
    return await asked.inspect.flow(asked.path["flow"])


async def cancel(asked: Asked) -> FlowView:
    flow = asked.path["flow"]
    reason = asked.body.reason or f"cancelled by {asked.who.name}"
    if not await asked.inspect.cancel_flow(flow, reason=reason):
        raise Refused(
            HTTPStatus.CONFLICT, f"flow {flow!r} has ended, and cannot be cancelled; look at its state"
        )
    return await get(asked)


async def retry(asked: Asked) -> FlowView:
    flow = asked.path["flow"]
    if not await asked.inspect.retry_flow(flow):
        raise Refused(
            HTTPStatus.CONFLICT,
            f"flow {flow!r} has not failed: only one that failed or was cancelled is retried",
        )
    return await get(asked)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/flows",
        role=Role.VIEWER,
        handler=find,
        says="Find flows, newest first.",
        query=FindFlows,
        answers=FlowPage,
    ),
    Route(
        method="GET",
        path="/api/v1/flows/{flow}",
        role=Role.VIEWER,
        handler=get,
        says="One flow with its steps, and what each waits for.",
        answers=FlowView,
    ),
    Route(
        method="POST",
        path="/api/v1/flows/{flow}/cancel",
        role=Role.OPERATOR,
        handler=cancel,
        says="Nothing new of the flow starts, and its jobs are cancelled.",
        takes=Why,
        answers=FlowView,
    ),
    Route(
        method="POST",
        path="/api/v1/flows/{flow}/retry",
        role=Role.OPERATOR,
        handler=retry,
        says="What failed or was cancelled goes again; steps that are done are not repeated.",
        answers=FlowView,
    ),
)
