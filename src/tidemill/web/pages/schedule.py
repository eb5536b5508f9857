"""One schedule: its coming ticks, what became of the last ones, and what it is set to."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemill.inspect.views import readable
from tidemill.schedules.settings import Settings
from tidemill.schedules.views import ScheduleView
from tidemill.seam.answers import Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked

TIMES = ("start", "end")
SPANS = ("every", "jitter")


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """`overridden`: a person put it over what was declared. `kind` says how its values are written."""

    name: str
    kind: str
    effective: Any
    declared: Any
    overridden: bool


async def schedule(asked: Asked) -> Page:
    [view] = await asked.inspect.schedules([await asked.app.schedules.get(asked.path["schedule"])])
    return Page(
        "schedule.html",
        {
            "schedule": view,
            "arguments": readable(bytes(view.arguments)),
            "settings": _rows(view),
            "known": view.task in asked.app.tasks,
        },
        live=("head", "ticks", "settings", "history"),
    )


def _rows(view: ScheduleView) -> list[SettingRow]:
    over = {} if view.override is None else view.override.changes.given()
    return [
        SettingRow(
            name=name,
            kind="time" if name in TIMES else "span" if name in SPANS else "text",
            effective=getattr(view.settings, name),
            declared=getattr(view.declared, name),
            overridden=name in over,
        )
        for name in Settings.__struct_fields__
    ]


ROUTES = (
    Route(
        method="GET",
        path="/schedules/{schedule}",
        role=Role.VIEWER,
        handler=schedule,
        says="One schedule with its ticks.",
    ),
)
