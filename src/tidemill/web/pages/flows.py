"""Flows by their state and name."""

from __future__ import annotations

import msgspec

from tidemill.core.graph_state import FlowState
from tidemill.seam.answers import Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked

AT_ONCE = 50


class FlowsWanted(msgspec.Struct, frozen=True, kw_only=True):
    state: FlowState | None = None
    name: str | None = None
    cursor: str | None = None


async def flows(asked: Asked) -> Page:
    wanted: FlowsWanted = asked.query
    found = await asked.inspect.flows(
        name=wanted.name,
        states=None if wanted.state is None else [wanted.state],
        limit=AT_ONCE,
        cursor=wanted.cursor,
    )
    return Page(
        "flows.html",
        {
            "flows": found.flows,
            "cursor": found.cursor,
            "wanted": wanted,
            "counts": await asked.inspect.flow_counts(),
        },
        live=("ways", "flows"),
    )


ROUTES = (
    Route(
        method="GET",
        path="/flows",
        role=Role.VIEWER,
        handler=flows,
        says="Flows, newest first.",
        query=FlowsWanted,
    ),
)
