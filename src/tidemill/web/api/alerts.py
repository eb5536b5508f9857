"""Alerts: what is wrong now."""

from __future__ import annotations

from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.telling.alerts.alerts import AlertView
from tidemill.web.asked import Asked


async def states(asked: Asked) -> list[AlertView]:
    return await asked.app.alerts.states()


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/alerts",
        role=Role.VIEWER,
        handler=states,
        says="What the rules find wrong, since when, and what was over lately.",
        answers=list[AlertView],
    ),
)
