"""Whether the server is there, and whether it can do anything."""

from __future__ import annotations

from http import HTTPStatus

from tidemill.errors import StoreError
from tidemill.seam.answers import Text
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked


async def health(_: Asked) -> Text:
    """The process answers."""
    return Text("ok\n")


async def readiness(asked: Asked) -> Text:
    """It reaches its store. No more is said: this answers anybody."""
    try:
        await (await asked.app.client.look()).read_clock()
    except StoreError:
        return Text("not ready\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
    return Text("ok\n")


ROUTES = (
    Route(
        method="GET", path="/healthz", role=Role.ANYBODY, handler=health, says="Whether the process answers."
    ),
    Route(
        method="GET",
        path="/readyz",
        role=Role.ANYBODY,
        handler=readiness,
        says="Whether it reaches its store.",
    ),
)
