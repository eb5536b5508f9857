"""The plan page: when jobs enqueued now would be done."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tidemill.errors import TidemillError
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import PageResponse, Role, Route
from tidemill.inspect.plan import LimitPlan, Plan
from tidemill.web.api import tasks
from tidemill.web.api.schemas import Name, Priority
from tidemill.web.api.tasks import PlanBody
from tidemill.web.request import RouteRequest, parse_duration_field


class PlanPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The form of the plan page. `arguments` are example arguments of a job, as a JSON object. `takes` is the
    duration of a call, such as `2s`."""

    task: Name | None = None
    count: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    takes: Annotated[str, Meta(max_length=50)] | None = None
    priority: Priority | None = None
    arguments: Annotated[str, Meta(max_length=10_000)] | None = None


class LimitShare(msgspec.Struct, frozen=True):
    """A limit of a plan, and the length of its bar on the page.

    `share` is `limit.seconds` divided by the seconds of the slowest limit, whose share is 1.0."""

    limit: LimitPlan
    share: float


async def plan_page(request: RouteRequest) -> PageResponse:
    query: PlanPageQuery = request.query
    plan, problem = await _compute_plan(request, query)
    return PageResponse(
        "plan.html",
        {
            "query": query,
            "tasks": [(name, name) for name in sorted(request.app.tasks)],
            "plan": plan,
            "shares": [] if plan is None else _limit_shares(plan),
            "problem": problem,
        },
        status=HTTPStatus.OK if problem is None else HTTPStatus.UNPROCESSABLE_ENTITY,
    )


async def _compute_plan(request: RouteRequest, query: PlanPageQuery) -> tuple[Plan | None, str | None]:
    """Returns (plan, None) or (None, error to show); (None, None) if the form has no task or no count."""
    if query.task is None or query.count is None:
        return None, None
    try:
        body = PlanBody(
            task=query.task,
            count=query.count,
            payload=_parse_arguments(query.arguments),
            priority=query.priority,
            takes=parse_duration_field(query.takes, field="takes"),
        )
        return await tasks.plan_jobs(replace(request, body=body)), None
    except (TidemillError, HTTPError) as error:
        return None, str(error)


def _parse_arguments(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise HTTPError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f'arguments: must be a JSON object, such as {{"song": "x"}}: {error}',
        ) from None


def _limit_shares(plan: Plan) -> list[LimitShare]:
    """Returns the limits with their bars, slowest first. A limit that blocks jobs forever has share 1.0."""
    longest = max((limit.seconds or 0.0 for limit in plan.limits), default=0.0)
    shares = [
        LimitShare(limit, 1.0 if limit.seconds is None or not longest else limit.seconds / longest)
        for limit in plan.limits
    ]
    return sorted(
        shares,
        key=lambda limit_share: (
            limit_share.limit.seconds is not None,
            -limit_share.share,
            limit_share.limit.name,
        ),
    )


ROUTES = (
    Route(
        method="GET",
        path="/plan",
        role=Role.VIEWER,
        handler=plan_page,
        summary="Estimate when jobs enqueued now would be done.",
        query=PlanPageQuery,
    ),
)
