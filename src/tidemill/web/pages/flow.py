"""One flow: its graph, how far each step is, and what can be done about it."""

from __future__ import annotations

import msgspec

from tidemill.core.filters import Filter
from tidemill.core.flow_jobs import job_id
from tidemill.core.job import Job
from tidemill.core.states import State
from tidemill.flows.views import FlowView
from tidemill.seam.answers import Go, Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked
from tidemill.web.flow_picture import picture_of
from tidemill.web.going import go

MOST_LOOKED_AT = 100
MOST_EXPLAINED = 3
"""Why a job waits takes a look at all pools."""


class CancelFlow(msgspec.Struct, frozen=True):
    reason: str | None = None


async def flow(asked: Asked) -> Page:
    view = await asked.inspect.flow(asked.path["flow"])
    jobs = await _jobs(asked, view)
    return Page(
        "flow.html",
        {
            "flow": view,
            "picture": picture_of(view, jobs),
            "jobs": jobs,
            "whys": await _whys(asked, jobs),
            "done": sum(step.state == "done" for step in view.steps),
        },
        live=("head", "graph", "steps"),
    )


async def cancel(asked: Asked) -> Go:
    id_, body = asked.path["flow"], asked.body
    done = await asked.inspect.cancel_flow(id_, reason=body.reason or f"cancelled by {asked.who.name}")
    return go(asked, "/flows/{}", id_, told="flow.cancelled" if done else "flow.had_ended")


async def retry(asked: Asked) -> Go:
    id_ = asked.path["flow"]
    done = await asked.inspect.retry_flow(id_)
    return go(asked, "/flows/{}", id_, told="flow.retried" if done else "flow.not_failed")


async def _jobs(asked: Asked, view: FlowView) -> dict[str, Job]:
    """Of the steps that are one job and under way, that job."""
    ids = {job_id(view.id, step.name): step.name for step in view.steps if step.live == 1 and not step.mapped}
    some = tuple(ids)[:MOST_LOOKED_AT]
    if not some:
        return {}
    found = await asked.inspect.find(Filter(ids=some), limit=len(some))
    return {ids[job.id]: job for job in found.jobs}


async def _whys(asked: Asked, jobs: dict[str, Job]) -> dict[str, str]:
    """By step: what the first of those that wait are waiting for."""
    waiting = [(step, job.id) for step, job in jobs.items() if job.state is not State.RUNNING]
    return {step: (await asked.inspect.explain(id_)).sentence for step, id_ in waiting[:MOST_EXPLAINED]}


ROUTES = (
    Route(
        method="GET",
        path="/flows/{flow}",
        role=Role.VIEWER,
        handler=flow,
        says="One flow, drawn as a graph.",
    ),
    Route(
        method="POST",
        path="/flows/{flow}/cancel",
        role=Role.OPERATOR,
        handler=cancel,
        says="Cancel a flow and its jobs.",
        takes=CancelFlow,
    ),
    Route(
        method="POST",
        path="/flows/{flow}/retry",
        role=Role.OPERATOR,
        handler=retry,
        says="Take up a flow from what failed.",
    ),
)
