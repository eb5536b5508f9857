"""What is done to a schedule from its page."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, cast

import msgspec

from tidemill.schedules.settings import CatchUp, Overlap, ScheduleOptions, Settings
from tidemill.seam.answers import Go
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Handler, Route
from tidemill.web.api.fields import Name, Sentence
from tidemill.web.api.schedules import remove as remove_schedule
from tidemill.web.asked import Asked
from tidemill.web.going import go
from tidemill.web.lasting import end_of, span_of


class PauseSchedule(msgspec.Struct, frozen=True):
    lasts: str | None = None
    reason: Sentence | None = None


class OverrideSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """What shall hold; what is as it was is not put over anything."""

    cron: Name | None = None
    tz: Name | None = None
    every: str | None = None
    catch_up: CatchUp | None = None
    overlap: Overlap | None = None
    jitter: str | None = None
    lasts: str | None = None
    reason: Sentence | None = None

    def changes(self, holds: Settings) -> ScheduleOptions:
        wanted: dict[str, Any] = {
            "cron": self.cron,
            "tz": self.tz,
            "every": span_of(self.every, field="every"),
            "catch_up": self.catch_up,
            "overlap": self.overlap,
            "jitter": span_of(self.jitter, field="jitter"),
        }
        differs = {
            name: value
            for name, value in wanted.items()
            if value is not None and value != getattr(holds, name)
        }
        return cast(ScheduleOptions, differs)


async def pause(asked: Asked) -> Go:
    said: PauseSchedule = asked.body
    until = await end_of(asked, said.lasts)
    await asked.app.schedules.pause(asked.path["schedule"], until=until, reason=said.reason)
    return _back(asked, "schedule.was_paused")


async def resume(asked: Asked) -> Go:
    await asked.app.schedules.resume(asked.path["schedule"])
    return _back(asked, "schedule.was_resumed")


async def run(asked: Asked) -> Go:
    job = await asked.app.schedules.run_now(asked.path["schedule"])
    return go(asked, "/jobs/{}", job.id, told="schedule.runs_already" if job.existing else "schedule.was_run")


async def override(asked: Asked) -> Go:
    said: OverrideSchedule = asked.body
    name = asked.path["schedule"]
    changes = said.changes((await asked.app.schedules.get(name)).settings)
    if not changes:
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY, "every setting is as it was; change one to override it"
        )
    until = await end_of(asked, said.lasts)
    await asked.app.schedules.override(name, by=asked.who.name, reason=said.reason, until=until, **changes)
    return _back(asked, "schedule.was_set")


async def follow(asked: Asked) -> Go:
    await asked.app.schedules.clear_override(asked.path["schedule"])
    return _back(asked, "schedule.follows")


async def remove(asked: Asked) -> Go:
    await remove_schedule(asked)
    return go(asked, "/schedules", told="schedule.was_removed", name=asked.path["schedule"])


def _back(asked: Asked, told: str) -> Go:
    return go(asked, "/schedules/{}", asked.path["schedule"], told=told)


def _post(verb: str, handler: Handler, role: Role, says: str, takes: Any = None) -> Route:
    path = f"/schedules/{{schedule}}/{verb}"
    return Route(method="POST", path=path, role=role, handler=handler, says=says, takes=takes)


ROUTES = (
    _post("pause", pause, Role.OPERATOR, "Its ticks make no jobs.", PauseSchedule),
    _post("resume", resume, Role.OPERATOR, "The end of a pause."),
    _post("run", run, Role.OPERATOR, "A job of it now."),
    _post("override", override, Role.ADMIN, "Other settings than it was declared with.", OverrideSchedule),
    _post("follow", follow, Role.ADMIN, "The settings it was declared with again."),
    _post("remove", remove, Role.ADMIN, "Forget a schedule that code does not declare."),
)
