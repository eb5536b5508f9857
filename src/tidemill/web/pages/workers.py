"""Who works."""

from __future__ import annotations

from tidemill.seam.answers import Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked


async def workers(asked: Asked) -> Page:
    found = sorted(await asked.inspect.workers(), key=lambda worker: (worker.host, worker.pid, worker.id))
    return Page("workers.html", {"workers": found}, live=("workers",))


ROUTES = (
    Route(method="GET", path="/workers", role=Role.VIEWER, handler=workers, says="Workers that are alive."),
)
