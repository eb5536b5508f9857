"""The page of all flows, the page of one flow with its diagram, and the actions cancel and retry."""

from __future__ import annotations

import msgspec

from tidemill.core.filters import Filter
from tidemill.core.flow_progress import FlowState
from tidemill.core.jobs import Job, flow_job_id
from tidemill.core.states import State
from tidemill.flows.views import FlowView
from tidemill.http_routes.routes import PageResponse, Redirect, Role, Route
from tidemill.web.flow_diagram import build_flow_diagram
from tidemill.web.request import RouteRequest

FLOWS_PER_PAGE = 50


class FlowsPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    state: FlowState | None = None
    name: str | None = None
    cursor: str | None = None


async def flows_page(request: RouteRequest) -> PageResponse:
    query: FlowsPageQuery = request.query
    page = await request.inspect.flows(
        name=query.name,
        states=None if query.state is None else [query.state],
        limit=FLOWS_PER_PAGE,
        cursor=query.cursor,
    )
    return PageResponse(
        "flows.html",
        {
            "flows": page.flows,
            "cursor": page.cursor,
            "query": query,
            "counts": await request.inspect.flow_counts(),
        },
        live=("tabs", "flows"),
    )


FLOWS_ROUTES = (
    Route(
        method="GET",
        path="/flows",
        role=Role.VIEWER,
        handler=flows_page,
        summary="Flows, newest first.",
        query=FlowsPageQuery,
    ),
)


MAX_JOBS_LOADED = 100
MAX_JOBS_EXPLAINED = 3
"""Explaining a job needs a look at all pools, so only the first few are explained."""


class CancelFlowForm(msgspec.Struct, frozen=True):
    reason: str | None = None


async def flow_page(request: RouteRequest) -> PageResponse:
    view = await request.inspect.flow(request.path["flow"])
    jobs = await _live_step_jobs(request, view)
    return PageResponse(
        "flow.html",
        {
            "flow": view,
            "diagram": build_flow_diagram(view, jobs),
            "jobs": jobs,
            "wait_reasons": await _wait_reasons(request, jobs),
            "done": sum(step.state == "done" for step in view.steps),
        },
        live=("head", "graph", "steps"),
    )


async def cancel_flow(request: RouteRequest) -> Redirect:
    id_, body = request.path["flow"], request.body
    changed = await request.inspect.cancel_flow(
        id_, reason=body.reason or f"cancelled by {request.user.name}"
    )
    return request.redirect(
        "/flows/{}", id_, notice="flow.notice_cancelled" if changed else "flow.notice_had_ended"
    )


async def retry_flow(request: RouteRequest) -> Redirect:
    id_ = request.path["flow"]
    changed = await request.inspect.retry_flow(id_)
    return request.redirect(
        "/flows/{}", id_, notice="flow.notice_retried" if changed else "flow.notice_not_failed"
    )


async def _live_step_jobs(request: RouteRequest, view: FlowView) -> dict[str, Job]:
    """Returns a dict from step name to live job, for steps that consist of one job. At most 100 jobs are
    loaded."""
    ids = {
        flow_job_id(view.id, step.name): step.name
        for step in view.steps
        if step.live == 1 and not step.mapped
    }
    loaded_ids = tuple(ids)[:MAX_JOBS_LOADED]
    if not loaded_ids:
        return {}
    page = await request.inspect.find(Filter(ids=loaded_ids), limit=len(loaded_ids))
    return {ids[job.id]: job for job in page.jobs}


async def _wait_reasons(request: RouteRequest, jobs: dict[str, Job]) -> dict[str, str]:
    """Returns a dict from the name of a waiting step to a sentence that says why it waits. Only the first
    three waiting steps are included."""
    waiting = [(step, job.id) for step, job in jobs.items() if job.state is not State.RUNNING]
    return {step: (await request.inspect.explain(id_)).sentence for step, id_ in waiting[:MAX_JOBS_EXPLAINED]}


FLOW_ROUTES = (
    Route(
        method="GET",
        path="/flows/{flow}",
        role=Role.VIEWER,
        handler=flow_page,
        summary="One flow with its diagram.",
    ),
    Route(
        method="POST",
        path="/flows/{flow}/cancel",
        role=Role.OPERATOR,
        handler=cancel_flow,
        summary="Cancel a flow and its jobs.",
        body=CancelFlowForm,
    ),
    Route(
        method="POST",
        path="/flows/{flow}/retry",
        role=Role.OPERATOR,
        handler=retry_flow,
        summary="Retry the failed steps of a flow.",
    ),
)

ROUTES = (*FLOWS_ROUTES, *FLOW_ROUTES)
