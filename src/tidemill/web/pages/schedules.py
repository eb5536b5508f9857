"""The page of all schedules, the page of one schedule, and the actions pause, resume, run, override and
remove."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, cast

import msgspec

from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import Handler, PageResponse, Redirect, Role, Route
from tidemill.inspect.views import decode_payload
from tidemill.schedules.schedule import VISIBLE_STATES, ScheduleState
from tidemill.schedules.settings import CatchUp, Overlap, ScheduleOptions, ScheduleSettings
from tidemill.schedules.views import ScheduleView
from tidemill.web.api.schedules import remove_schedule
from tidemill.web.api.schemas import Name
from tidemill.web.pages.queues import OperatorForm
from tidemill.web.request import RouteRequest, parse_duration_field

SCHEDULES_PER_PAGE = 50


class SchedulesPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    state: ScheduleState | None = None
    cursor: str | None = None


async def schedules_page(request: RouteRequest) -> PageResponse:
    query: SchedulesPageQuery = request.query
    page = await request.app.schedules.list(
        states=VISIBLE_STATES if query.state is None else [query.state],
        limit=SCHEDULES_PER_PAGE,
        cursor=query.cursor,
    )
    counts = await request.app.schedules.counts()
    return PageResponse(
        "schedules.html",
        {
            "schedules": page.schedules,
            "cursor": page.cursor,
            "query": query,
            "counts": {state.value: counts.get(state, 0) for state in VISIBLE_STATES},
        },
        live=("tabs", "schedules"),
    )


SCHEDULES_ROUTES = (
    Route(
        method="GET",
        path="/schedules",
        role=Role.VIEWER,
        handler=schedules_page,
        summary="Schedules, newest first.",
        query=SchedulesPageQuery,
    ),
)


TIME_SETTINGS = ("start", "end")
DURATION_SETTINGS = ("every", "jitter")


class ScheduleSettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of a schedule with its effective and declared value. `kind` decides how the values are
    formatted: `time`, `span` (a duration) or `text`."""

    name: str
    kind: str
    effective: Any
    declared: Any
    overridden: bool


async def schedule_page(request: RouteRequest) -> PageResponse:
    [view] = await request.inspect.schedules([await request.app.schedules.get(request.path["schedule"])])
    return PageResponse(
        "schedule.html",
        {
            "schedule": view,
            "arguments": decode_payload(bytes(view.arguments)),
            "settings": _setting_rows(view),
            "task_known": view.task in request.app.tasks,
        },
        live=("head", "ticks", "settings", "history"),
    )


def _setting_rows(view: ScheduleView) -> list[ScheduleSettingRow]:
    overridden = {} if view.override is None else view.override.changes.given()
    return [
        ScheduleSettingRow(
            name=name,
            kind="time" if name in TIME_SETTINGS else "span" if name in DURATION_SETTINGS else "text",
            effective=getattr(view.settings, name),
            declared=getattr(view.declared, name),
            overridden=name in overridden,
        )
        for name in ScheduleSettings.__struct_fields__
    ]


SCHEDULE_ROUTES = (
    Route(
        method="GET",
        path="/schedules/{schedule}",
        role=Role.VIEWER,
        handler=schedule_page,
        summary="One schedule with its ticks.",
    ),
)


class ScheduleSettingsForm(OperatorForm, frozen=True, kw_only=True):
    """The form that overrides the settings of a schedule. Empty and unchanged settings are not overridden.
    `duration`: how long the override lasts, such as `2h`; empty for no end."""

    cron: Name | None = None
    tz: Name | None = None
    every: str | None = None
    catch_up: CatchUp | None = None
    overlap: Overlap | None = None
    jitter: str | None = None

    def changes(self, effective: ScheduleSettings) -> ScheduleOptions:
        settings: dict[str, Any] = {
            "cron": self.cron,
            "tz": self.tz,
            "every": parse_duration_field(self.every, field="every"),
            "catch_up": self.catch_up,
            "overlap": self.overlap,
            "jitter": parse_duration_field(self.jitter, field="jitter"),
        }
        differs = {
            name: value
            for name, value in settings.items()
            if value is not None and value != getattr(effective, name)
        }
        return cast(ScheduleOptions, differs)


async def pause_schedule(request: RouteRequest) -> Redirect:
    await request.app.schedules.pause(request.path["schedule"], **await request.body.mark(request))
    return _redirect_to_schedule(request, "schedule.notice_paused")


async def resume_schedule(request: RouteRequest) -> Redirect:
    await request.app.schedules.resume(request.path["schedule"])
    return _redirect_to_schedule(request, "schedule.notice_resumed")


async def run_schedule(request: RouteRequest) -> Redirect:
    job = await request.app.schedules.run_now(request.path["schedule"])
    return request.redirect(
        "/jobs/{}",
        job.id,
        notice="schedule.notice_still_live" if job.existing else "schedule.notice_enqueued",
    )


async def override_schedule(request: RouteRequest) -> Redirect:
    body: ScheduleSettingsForm = request.body
    name = request.path["schedule"]
    changes = body.changes((await request.app.schedules.get(name)).settings)
    if not changes:
        raise HTTPError(
            HTTPStatus.UNPROCESSABLE_ENTITY, "every setting is as it was; change one to override it"
        )
    await request.app.schedules.override(name, by=request.user.name, **await body.mark(request), **changes)
    return _redirect_to_schedule(request, "schedule.notice_saved")


async def clear_schedule_override(request: RouteRequest) -> Redirect:
    await request.app.schedules.clear_override(request.path["schedule"])
    return _redirect_to_schedule(request, "schedule.notice_override_removed")


async def delete_schedule(request: RouteRequest) -> Redirect:
    await remove_schedule(request)
    return request.redirect("/schedules", notice="schedule.notice_removed", name=request.path["schedule"])


def _redirect_to_schedule(request: RouteRequest, notice: str) -> Redirect:
    return request.redirect("/schedules/{}", request.path["schedule"], notice=notice)


def _schedule_action_route(verb: str, handler: Handler, role: Role, summary: str, body: Any = None) -> Route:
    path = f"/schedules/{{schedule}}/{verb}"
    return Route(method="POST", path=path, role=role, handler=handler, summary=summary, body=body)


SCHEDULE_ACTION_ROUTES = (
    _schedule_action_route("pause", pause_schedule, Role.OPERATOR, "Pause the schedule.", OperatorForm),
    _schedule_action_route("resume", resume_schedule, Role.OPERATOR, "Resume the schedule."),
    _schedule_action_route("run", run_schedule, Role.OPERATOR, "Create a job now."),
    _schedule_action_route(
        "override",
        override_schedule,
        Role.ADMIN,
        "Override settings.",
        ScheduleSettingsForm,
    ),
    _schedule_action_route("clear-override", clear_schedule_override, Role.ADMIN, "Remove the override."),
    _schedule_action_route("remove", delete_schedule, Role.ADMIN, "Remove a schedule that is not declared."),
)

ROUTES = (*SCHEDULES_ROUTES, *SCHEDULE_ROUTES, *SCHEDULE_ACTION_ROUTES)
