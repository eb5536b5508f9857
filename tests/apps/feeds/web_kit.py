"""The feeds application with its API and pages: an admin, an operator, a viewer and an anonymous client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.apps.feeds.service_kit import FeedBench, bench_in
from tests.web.asgi_client import ClientResponse, send_request
from tests.web.signed_in_client import FORM, create_token
from tidemill.web import Role, dashboard
from tidemill_apps.feeds.alerts import declare_alerts
from tidemill_apps.feeds.pages import FeedPages
from tidemill_apps.feeds.routes import FeedActions, FeedRoutes

ADMIN, OPERATOR, VIEWER, ANONYMOUS = "admin", "operator", "viewer", ""


class FeedSite:
    """Declares routes, pages and alerts as `tidemill_apps.feeds.app` does."""

    def __init__(self, bench: FeedBench) -> None:
        self.bench, self.tokens = bench, dict[str, str]()
        actions = FeedActions(bench.feeds)
        FeedRoutes(actions).declare()
        FeedPages(actions).declare()
        declare_alerts(bench.feeds)
        self.served = dashboard(bench.app)

    async def call(
        self, method: str, path: str, body: Any = None, *, who: str = ADMIN, **headers: str
    ) -> ClientResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if who:
            if who not in self.tokens:
                self.tokens[who] = await create_token(self.bench.app, Role(who), who)
            named["authorization"] = f"Bearer {self.tokens[who]}"
        sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if sent:
            named.setdefault("content-type", "application/json")
        return await send_request(self.served, method, path, headers=named, body=sent)

    async def page(self, path: str, language: str = "en", who: str = ADMIN) -> ClientResponse:
        return await self.call("GET", path, who=who, accept="text/html", accept_language=language)

    async def press(self, path: str, form: str = "", who: str = ADMIN) -> ClientResponse:
        """Submits the form of a button."""
        return await self.call("POST", path, form.encode(), who=who, content_type=FORM, accept="text/html")


@asynccontextmanager
async def site_in(folder: Path, **settings: Any) -> AsyncIterator[FeedSite]:
    async with bench_in(folder, **settings) as bench:
        yield FeedSite(bench)
