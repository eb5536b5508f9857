"""Numbers for Prometheus."""

from __future__ import annotations

from tidemill.metrics import CONTENT_TYPE
from tidemill.seam.answers import Text
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked


async def metrics(asked: Asked) -> Text:
    return Text(await asked.app.exposition(), media_type=CONTENT_TYPE)


ROUTES = (
    Route(
        method="GET",
        path="/metrics",
        role=Role.VIEWER,
        handler=metrics,
        says="Every metric, in the text format of Prometheus.",
    ),
)
