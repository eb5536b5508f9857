"""When so many jobs would be done, if they were sent now."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tidemill.errors import TidemillError
from tidemill.inspect.plan import LimitPlan, Plan
from tidemill.seam.answers import Page
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api import plans
from tidemill.web.api.fields import Name, Priority
from tidemill.web.api.plans import Planned
from tidemill.web.asked import Asked
from tidemill.web.lasting import span_of


class PlanWanted(msgspec.Struct, frozen=True, kw_only=True):
    """`arguments` are an example of a job's, as a JSON object."""

    task: Name | None = None
    count: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    takes: Annotated[str, Meta(max_length=50)] | None = None
    priority: Priority | None = None
    arguments: Annotated[str, Meta(max_length=10_000)] | None = None


class Share(msgspec.Struct, frozen=True):
    """A limit, and how long it alone would take, of the longest."""

    limit: LimitPlan
    share: float


async def plan(asked: Asked) -> Page:
    wanted: PlanWanted = asked.query
    found, problem = await _answer(asked, wanted)
    return Page(
        "plan.html",
        {
            "wanted": wanted,
            "tasks": [(name, name) for name in sorted(asked.app.tasks)],
            "plan": found,
            "shares": [] if found is None else _shares(found),
            "problem": problem,
        },
        status=HTTPStatus.OK if problem is None else HTTPStatus.UNPROCESSABLE_ENTITY,
    )


async def _answer(asked: Asked, wanted: PlanWanted) -> tuple[Plan | None, str | None]:
    """What is wrong is said beside what was typed."""
    if wanted.task is None or wanted.count is None:
        return None, None
    try:
        said = Planned(
            task=wanted.task,
            count=wanted.count,
            payload=_payload(wanted.arguments),
            priority=wanted.priority,
            takes=span_of(wanted.takes, field="takes"),
        )
        return await plans.plan(replace(asked, body=said)), None
    except (TidemillError, Refused) as error:
        return None, str(error)


def _payload(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f'arguments: must be a JSON object, such as {{"song": "x"}}: {error}',
        ) from None


def _shares(found: Plan) -> list[Share]:
    """Longest first; one that takes for ever is all of it."""
    longest = max((limit.seconds or 0.0 for limit in found.limits), default=0.0)
    shares = [
        Share(limit, 1.0 if limit.seconds is None or not longest else limit.seconds / longest)
        for limit in found.limits
    ]
    return sorted(shares, key=lambda one: (one.limit.seconds is not None, -one.share, one.limit.name))


ROUTES = (
    Route(
        method="GET",
        path="/plan",
        role=Role.VIEWER,
        handler=plan,
        says="When so many jobs would be done if they were sent now.",
        query=PlanWanted,
    ),
)
