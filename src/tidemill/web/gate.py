"""Who may pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request

from tidemill.app import Tidemill
from tidemill.seam.roles import NOBODY, Who
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked

Auth = Callable[[Request], Awaitable[Who | None]]


class Gate:
    """Every request passes it once. It raises `Refused`, or says who asks."""

    def __init__(self, app: Tidemill, auth: Auth | None) -> None:
        self._app, self._auth = app, auth

    async def admit(self, request: Request, route: Route) -> Who:
        return NOBODY

    async def check_host(self, request: Request) -> None:
        """Of every request, to whichever path."""

    async def record(self, request: Request, route: Route, asked: Asked) -> None:
        """A write that succeeded, in the audit log."""
