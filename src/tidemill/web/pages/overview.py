"""Everything at a glance."""

from __future__ import annotations

from tidemill.seam.answers import Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked


async def overview(asked: Asked) -> Page:
    return Page(
        "overview.html",
        {"overview": await asked.inspect.overview(sparing=True)},
        live=("queues", "pools", "workers"),
    )


ROUTES = (Route(method="GET", path="/", role=Role.VIEWER, handler=overview, says="Everything at a glance."),)
