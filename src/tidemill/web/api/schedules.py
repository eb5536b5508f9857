"""Schedules: jobs that come of time going by."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidemill.errors import ConfigurationError
from tidemill.schedules.changes import not_found
from tidemill.schedules.schedule import PRESENT, Origin, ScheduleState
from tidemill.schedules.settings import CatchUp, Overlap
from tidemill.schedules.views import SchedulePage, ScheduleView
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import Body, Limit, Name, Query, Seconds, Sentence, TextCursor, Time
from tidemill.web.api.new_jobs import NewJob, Sent, made_job, request_of
from tidemill.web.api.queues import NewPause
from tidemill.web.asked import Asked

Setting = Literal["cron", "tz", "every", "start", "end", "catch_up", "overlap", "jitter"]


class FindSchedules(Query, frozen=True, kw_only=True):
    states: list[ScheduleState] | None = msgspec.field(default=None, name="state")
    origin: Origin | None = None
    limit: Limit = 100
    cursor: TextCursor | None = None


class ScheduleRule(Body, frozen=True, kw_only=True):
    """Either `cron`, read in the zone `tz`, or `every` so many seconds. Nothing ticks before `start` or after
    `end`. `catch_up` says what becomes of ticks nobody was there for, `overlap` of one while the last job is
    live; a job starts up to `jitter` seconds after its tick."""

    cron: Name | UnsetType = UNSET
    tz: Name | UnsetType = UNSET
    every: Seconds | UnsetType = UNSET
    start: Time | UnsetType | None = UNSET
    end: Time | UnsetType | None = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    jitter: Seconds | UnsetType = UNSET


class RuleNames(Query, frozen=True, kw_only=True):
    """Without any, all of them."""

    names: list[Setting] = msgspec.field(default_factory=list, name="name")


class NewSchedule(ScheduleRule, frozen=True, kw_only=True):
    """A rule, and the `job` that every tick makes."""

    job: NewJob


class RuleOverride(ScheduleRule, frozen=True, kw_only=True):
    """What is given joins the override that holds. `until` ends all of it; null takes an end away."""

    reason: Sentence | None = None
    until: Time | UnsetType | None = UNSET


async def find(asked: Asked) -> SchedulePage:
    said: FindSchedules = asked.query
    page = await asked.app.schedules.list(
        states=PRESENT if said.states is None else said.states,
        origin=said.origin,
        limit=said.limit,
        cursor=said.cursor,
    )
    return SchedulePage(tuple(await asked.inspect.schedules(page.schedules)), page.cursor)


async def get(asked: Asked) -> ScheduleView:
    return await _shown(asked, await asked.app.schedules.get(asked.path["schedule"]))


async def _shown(asked: Asked, view: ScheduleView) -> ScheduleView:
    [shown] = await asked.inspect.schedules([view])
    return shown


async def upsert(asked: Asked) -> ScheduleView:
    said: NewSchedule = asked.body
    if said.job.id is not UNSET:
        raise ConfigurationError("job.id: each tick makes a job with an id of its own; leave it out")
    job = request_of(asked, said.job)
    return await _shown(asked, await asked.app.schedules.upsert(asked.path["schedule"], job, **_rule(said)))


async def remove(asked: Asked) -> None:
    name = asked.path["schedule"]
    view = await asked.app.schedules.get(name)
    if view.origin is Origin.DECLARED and view.state is not ScheduleState.DISABLED:
        raise Refused(
            HTTPStatus.CONFLICT,
            f"schedule {name!r} is declared by code, and the next worker would make it again; take it out of "
            "the code, or pause it",
        )
    if not await asked.app.schedules.remove(name):
        raise not_found(name)


async def pause(asked: Asked) -> ScheduleView:
    view = await asked.app.schedules.pause(
        asked.path["schedule"], until=asked.body.until, reason=asked.body.reason
    )
    return await _shown(asked, view)


async def resume(asked: Asked) -> ScheduleView:
    return await _shown(asked, await asked.app.schedules.resume(asked.path["schedule"]))


async def run(asked: Asked) -> Sent:
    job = await asked.app.schedules.run_now(asked.path["schedule"])
    return Sent(id=job.id, existing=job.existing)


async def override(asked: Asked) -> ScheduleView:
    said: RuleOverride = asked.body
    view = await asked.app.schedules.override(
        asked.path["schedule"], by=asked.who.name, reason=said.reason, until=said.until, **_rule(said)
    )
    return await _shown(asked, view)


async def clear(asked: Asked) -> ScheduleView:
    view = await asked.app.schedules.clear_override(asked.path["schedule"], *asked.query.names)
    return await _shown(asked, view)


def _rule(said: ScheduleRule) -> Any:
    named = ScheduleRule.__struct_fields__
    return {name: value for name in named if (value := getattr(said, name)) is not UNSET}


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/schedules",
        role=Role.VIEWER,
        handler=find,
        says="Schedules, newest first, each with its next tick.",
        query=FindSchedules,
        answers=SchedulePage,
    ),
    Route(
        method="GET",
        path="/api/v1/schedules/{schedule}",
        role=Role.VIEWER,
        handler=get,
        says="One schedule with its coming and last ticks.",
        answers=ScheduleView,
    ),
    Route(
        method="PUT",
        path="/api/v1/schedules/{schedule}",
        role=Role.OPERATOR,
        handler=upsert,
        says="Make a schedule, or give the one of that name other work or another rule; one that code "
        "declares is refused.",
        takes=Annotated[
            NewSchedule,
            Meta(examples=[{"job": {"task": "feeds:refresh", "payload": {"feed": 7}}, "every": 3600}]),
        ],
        answers=ScheduleView,
    ),
    Route(
        method="DELETE",
        path="/api/v1/schedules/{schedule}",
        role=Role.ADMIN,
        handler=remove,
        says="Forget a schedule; jobs it made stay. One that code declares is refused.",
        status=HTTPStatus.NO_CONTENT,
    ),
    Route(
        method="POST",
        path="/api/v1/schedules/{schedule}/pause",
        role=Role.OPERATOR,
        handler=pause,
        says="No tick makes a job until a time, or until it is resumed; they are not caught up.",
        takes=NewPause,
        answers=ScheduleView,
    ),
    Route(
        method="POST",
        path="/api/v1/schedules/{schedule}/resume",
        role=Role.OPERATOR,
        handler=resume,
        says="End a pause; harmless when there is none.",
        answers=ScheduleView,
    ),
    Route(
        method="POST",
        path="/api/v1/schedules/{schedule}/run",
        role=Role.OPERATOR,
        handler=run,
        says="Make a job of it now, whether or not it is paused; its ticks stay as they are.",
        answers=Sent,
        made=made_job,
    ),
    Route(
        method="PATCH",
        path="/api/v1/schedules/{schedule}/settings",
        role=Role.ADMIN,
        handler=override,
        says="Put another rule over the one that code or a call said; no deploy erases it.",
        takes=RuleOverride,
        answers=ScheduleView,
    ),
    Route(
        method="DELETE",
        path="/api/v1/schedules/{schedule}/settings",
        role=Role.ADMIN,
        handler=clear,
        says="The named settings follow the code again; without names, all of them.",
        query=RuleNames,
        answers=ScheduleView,
    ),
)
