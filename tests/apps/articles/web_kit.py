"""A blog with authentication: an admin, a viewer, and an anonymous client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.web.asgi_client import ClientResponse, send_request
from tests.web.signed_in_client import create_token
from tidemill import Tidemill
from tidemill.web import Role, dashboard
from tidemill.web.server import listen, serve_dashboard
from tidemill_apps.articles.embedding_triggers import EmbeddingTriggers, TriggerLimits
from tidemill_apps.articles.metrics import declare_metrics
from tidemill_apps.articles.pages import ArticlePages
from tidemill_apps.articles.routes import ArticleRoutes
from tidemill_apps.articles.service import Articles
from tidemill_apps.articles.settings import ArticlesSettings

ADMIN, VIEWER, ANONYMOUS = "admin", "viewer", ""
FAST_SETTINGS = {"linger": 0.0, "requests_per_window": 0, "reconcile_seconds": 0.2, "retry_seconds": 0.05}


def declare_web(articles: Articles) -> None:
    """Declares routes, pages and metrics as `tidemill_apps.articles.app` does."""
    limits = TriggerLimits(articles)
    triggers = EmbeddingTriggers(articles, limits)
    ArticleRoutes(articles, limits, triggers).declare()
    ArticlePages(articles, limits, triggers).declare()
    declare_metrics(articles.app, articles.queue)


class Blog:
    def __init__(self, folder: Path, **settings: Any) -> None:
        self.app = Tidemill(f"sqlite:///{folder / 'jobs.db'}")
        given = {
            "database_url": f"sqlite:///{folder / 'articles.db'}",
            "qdrant_path": str(folder / "vectors"),
            **FAST_SETTINGS,
            **settings,
        }
        self.articles = Articles(self.app, ArticlesSettings(**given))
        declare_web(self.articles)
        self.served = dashboard(self.app)
        self.tokens: dict[str, str] = {}

    async def call(
        self, method: str, path: str, body: Any = None, *, who: str = ADMIN, **headers: str
    ) -> ClientResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if who:
            named["authorization"] = f"Bearer {await self.token(who)}"
        sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if sent:
            named.setdefault("content-type", "application/json")
        return await send_request(self.served, method, path, headers=named, body=sent)

    async def write(self, title: str = "潮汐磨坊", content: str = "潮水带动石磨。", **more: Any) -> int:
        """Creates an article by the API; returns its id."""
        answer = await self.call("POST", "/api/post", {"title": title, "content": content, **more})
        assert answer.status == 200, answer.text
        number: int = answer.json["data"]["id"]
        return number

    async def wait_until_embedded(self, *ids: int) -> None:
        """Waits until the newest job of each article has ended."""
        for number in ids:
            post = await self.articles.posts.get(number)
            assert post is not None
            assert post.rag_job
            await self.app.job(post.rag_job).result(30)

    @asynccontextmanager
    async def run_worker(self) -> AsyncIterator[None]:
        worker = self.app.worker()
        running = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await running

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serves over HTTP; yields the address."""
        socket = listen("127.0.0.1", 0, port_is_fixed=True)
        async with serve_dashboard(self.app, socket):
            yield f"http://127.0.0.1:{socket.getsockname()[1]}"

    async def token(self, who: str) -> str:
        if who not in self.tokens:
            self.tokens[who] = await create_token(self.app, Role(who), who)
        return self.tokens[who]


@asynccontextmanager
async def blog_in(folder: Path, **settings: Any) -> AsyncIterator[Blog]:
    blog = Blog(folder, **settings)
    async with blog.app:
        try:
            yield blog
        finally:
            await blog.articles.close()
