"""Schedules by their state."""

from __future__ import annotations

import msgspec

from tidemill.schedules.schedule import PRESENT, ScheduleState
from tidemill.seam.answers import Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked

AT_ONCE = 50


class SchedulesWanted(msgspec.Struct, frozen=True, kw_only=True):
    state: ScheduleState | None = None
    cursor: str | None = None


async def schedules(asked: Asked) -> Page:
    wanted: SchedulesWanted = asked.query
    found = await asked.app.schedules.list(
        states=PRESENT if wanted.state is None else [wanted.state], limit=AT_ONCE, cursor=wanted.cursor
    )
    counts = await asked.app.schedules.counts()
    return Page(
        "schedules.html",
        {
            "schedules": found.schedules,
            "cursor": found.cursor,
            "wanted": wanted,
            "counts": {state.value: counts.get(state, 0) for state in PRESENT},
        },
        live=("ways", "schedules"),
    )


ROUTES = (
    Route(
        method="GET",
        path="/schedules",
        role=Role.VIEWER,
        handler=schedules,
        says="Schedules, newest first.",
        query=SchedulesWanted,
    ),
)
