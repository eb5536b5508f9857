"""API routes for schedules: list, create, pause, run, override, remove."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidemill.errors import ConfigurationError
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import Role, Route
from tidemill.schedules.changes import schedule_not_found
from tidemill.schedules.schedule import VISIBLE_STATES, ScheduleOrigin, ScheduleState
from tidemill.schedules.settings import CatchUp, Overlap
from tidemill.schedules.views import SchedulePage, ScheduleView
from tidemill.web.api.enqueue import EnqueueBody, EnqueueResponse, audit_enqueued_job, build_job_request
from tidemill.web.api.queues import PauseBody
from tidemill.web.api.schemas import (
    Limit,
    Name,
    QueryParameters,
    RequestBody,
    Seconds,
    Sentence,
    TextCursor,
    Time,
    override_arguments,
)
from tidemill.web.request import RouteRequest

ScheduleSettingName = Literal["cron", "tz", "every", "start", "end", "catch_up", "overlap", "jitter"]


class ScheduleQuery(QueryParameters, frozen=True, kw_only=True):
    states: list[ScheduleState] | None = msgspec.field(default=None, name="state")
    origin: ScheduleOrigin | None = None
    limit: Limit = 100
    cursor: TextCursor | None = None


class ScheduleRuleBody(RequestBody, frozen=True, kw_only=True):
    """The rule of a schedule. Give either `cron` or `every`.

    - `cron`, `tz`: a cron expression, and its time zone
    - `every`: the interval between ticks in seconds
    - `start`, `end`: no ticks happen before `start` or after `end`
    - `catch_up`: "skip" creates no job for missed ticks, "once" one job for the latest missed tick, "all" one
      job for each missed tick
    - `overlap`: "skip" creates no job while the job of an earlier tick is live, "allow" creates it anyway
    - `jitter`: each job starts up to this many seconds after its tick, to spread the load"""

    cron: Name | UnsetType = UNSET
    tz: Name | UnsetType = UNSET
    every: Seconds | UnsetType = UNSET
    start: Time | UnsetType | None = UNSET
    end: Time | UnsetType | None = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    jitter: Seconds | UnsetType = UNSET


class ScheduleSettingNamesQuery(QueryParameters, frozen=True, kw_only=True):
    """The names of the settings whose override is removed. Without names, the override of all settings is
    removed."""

    names: list[ScheduleSettingName] = msgspec.field(default_factory=list, name="name")


class NewScheduleBody(ScheduleRuleBody, frozen=True, kw_only=True):
    """A request to create a schedule: its rule, and the `job` that every tick creates.

    `next_at` is the time of the next tick, for a schedule with `every`."""

    job: EnqueueBody
    next_at: Time | UnsetType | None = UNSET


class ScheduleOverrideBody(ScheduleRuleBody, frozen=True, kw_only=True):
    """An override of the rule of a schedule. It is merged with an existing override.

    `until` is the end of the whole override. If it is missing, the present end stays; null removes the
    end."""

    reason: Sentence | None = None
    until: Time | UnsetType | None = UNSET


async def find_schedules(request: RouteRequest) -> SchedulePage:
    query: ScheduleQuery = request.query
    page = await request.app.schedules.list(
        states=VISIBLE_STATES if query.states is None else query.states,
        origin=query.origin,
        limit=query.limit,
        cursor=query.cursor,
    )
    return SchedulePage(tuple(await request.inspect.schedules(page.schedules)), page.cursor)


async def get_schedule(request: RouteRequest) -> ScheduleView:
    return await _redacted_view(request, await request.app.schedules.get(request.path["schedule"]))


async def _redacted_view(request: RouteRequest, view: ScheduleView) -> ScheduleView:
    [shown] = await request.inspect.schedules([view])
    return shown


async def upsert_schedule(request: RouteRequest) -> ScheduleView:
    body: NewScheduleBody = request.body
    if body.job.id is not UNSET:
        raise ConfigurationError("job.id: each tick makes a job with an id of its own; leave it out")
    job = build_job_request(request, body.job)
    rule: Any = {
        name: value
        for name in (*ScheduleRuleBody.__struct_fields__, "next_at")
        if (value := getattr(body, name)) is not UNSET
    }
    view = await request.app.schedules.upsert(request.path["schedule"], job, **rule)
    return await _redacted_view(request, view)


async def remove_schedule(request: RouteRequest) -> None:
    name = request.path["schedule"]
    view = await request.app.schedules.get(name)
    if view.origin is ScheduleOrigin.DECLARED and view.state is not ScheduleState.DISABLED:
        raise HTTPError(
            HTTPStatus.CONFLICT,
            f"schedule {name!r} is declared by code, and the next worker would make it again; take it out of "
            "the code, or pause it",
        )
    if not await request.app.schedules.remove(name):
        raise schedule_not_found(name)


async def pause_schedule(request: RouteRequest) -> ScheduleView:
    view = await request.app.schedules.pause(
        request.path["schedule"], until=request.body.until, reason=request.body.reason
    )
    return await _redacted_view(request, view)


async def resume_schedule(request: RouteRequest) -> ScheduleView:
    return await _redacted_view(request, await request.app.schedules.resume(request.path["schedule"]))


async def run_schedule(request: RouteRequest) -> EnqueueResponse:
    job = await request.app.schedules.run_now(request.path["schedule"])
    return EnqueueResponse(id=job.id, existing=job.existing)


async def override_schedule(request: RouteRequest) -> ScheduleView:
    view = await request.app.schedules.override(request.path["schedule"], **override_arguments(request))
    return await _redacted_view(request, view)


async def clear_schedule_override(request: RouteRequest) -> ScheduleView:
    view = await request.app.schedules.clear_override(request.path["schedule"], *request.query.names)
    return await _redacted_view(request, view)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/schedules",
        role=Role.VIEWER,
        handler=find_schedules,
        summary="Schedules, newest first, each with its next tick.",
        query=ScheduleQuery,
        response=SchedulePage,
    ),
    Route(
        method="GET",
        path="/api/v1/schedules/{schedule}",
        role=Role.VIEWER,
        handler=get_schedule,
        summary="One schedule with its next and last ticks.",
        response=ScheduleView,
    ),
    Route(
        method="PUT",
        path="/api/v1/schedules/{schedule}",
        role=Role.OPERATOR,
        handler=upsert_schedule,
        summary="Create or replace a schedule; declared schedules are refused.",
        body=Annotated[
            NewScheduleBody,
            Meta(examples=[{"job": {"task": "feeds:refresh", "payload": {"feed": 7}}, "every": 3600}]),
        ],
        response=ScheduleView,
    ),
    Route(
        method="DELETE",
        path="/api/v1/schedules/{schedule}",
        role=Role.ADMIN,
        handler=remove_schedule,
        summary="Remove a schedule; its jobs stay. Declared schedules are refused.",
        status=HTTPStatus.NO_CONTENT,
    ),
    Route(
        method="POST",
        path="/api/v1/schedules/{schedule}/pause",
        role=Role.OPERATOR,
        handler=pause_schedule,
        summary="Pause the schedule until a time, or until it is resumed. Missed ticks are not caught up.",
        body=PauseBody,
        response=ScheduleView,
    ),
    Route(
        method="POST",
        path="/api/v1/schedules/{schedule}/resume",
        role=Role.OPERATOR,
        handler=resume_schedule,
        summary="Resume the schedule; does nothing if it is not paused.",
        response=ScheduleView,
    ),
    Route(
        method="POST",
        path="/api/v1/schedules/{schedule}/run",
        role=Role.OPERATOR,
        handler=run_schedule,
        summary="Create a job now, even if the schedule is paused; its ticks do not change.",
        response=EnqueueResponse,
        audit_details=audit_enqueued_job,
    ),
    Route(
        method="PATCH",
        path="/api/v1/schedules/{schedule}/settings",
        role=Role.ADMIN,
        handler=override_schedule,
        summary="Override the declared rule; the override survives deployments.",
        body=ScheduleOverrideBody,
        response=ScheduleView,
    ),
    Route(
        method="DELETE",
        path="/api/v1/schedules/{schedule}/settings",
        role=Role.ADMIN,
        handler=clear_schedule_override,
        summary="Remove the override of the named settings; without names, of all.",
        query=ScheduleSettingNamesQuery,
        response=ScheduleView,
    ),
)
