"""The document of this API, with what the application added to it."""

from __future__ import annotations

from typing import Any

from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked
from tidemill.web.openapi import document


async def openapi(asked: Asked) -> dict[str, Any]:
    from tidemill.web.table import api_routes  # this file is one of those it lists

    return document((*api_routes(), *asked.app.web.routes), server=asked.prefix or "/")


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/openapi.json",
        role=Role.VIEWER,
        handler=openapi,
        says="This API as an OpenAPI 3.1 document.",
        answers=dict[str, Any],
    ),
)
