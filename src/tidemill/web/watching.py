"""Pages that are looked at: each has a stream of its parts, below `/live`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from tidemill.seam.answers import Events, Page
from tidemill.seam.roles import Role, Who
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked
from tidemill.web.live import Looks
from tidemill.web.rendering import Renderer

LIVE = "/live"


def live_routes(routes: Iterable[Route], renderer: Renderer, looks: Looks) -> list[Route]:
    """Of pages that somebody has to sign in for: a stream costs as long as it is open."""
    pages = (route for route in routes if not route.writes and not route.path.startswith("/api/"))
    return [_live(route, renderer, looks) for route in pages if route.role is not Role.ANYBODY]


def _live(route: Route, renderer: Renderer, looks: Looks) -> Route:
    async def follow(asked: Asked) -> Events:
        """All viewers of a role share what is made for one of them: nobody's name may be on it."""
        anyone = replace(asked, who=Who("", asked.who.role), headers={}, address=None)

        async def make() -> dict[str, str]:
            page = await route.handler(anyone)
            return renderer.blocks(asked.prefix, anyone, page) if isinstance(page, Page) else {}

        of = (
            route.path,
            *asked.path.values(),
            _text(asked.query),
            asked.who.role,
            asked.language,
            asked.prefix,
        )
        return Events(looks.watch(of, make, asked.headers.get("last-event-id")))

    return Route(
        method="GET",
        path=f"{LIVE}{route.path.rstrip('/') or '/overview'}",
        role=route.role,
        handler=follow,
        says=f"The parts of {route.path} that change, as they do.",
        query=route.query,
    )


def _text(query: Any) -> str:
    return msgspec.json.encode(query).decode()
