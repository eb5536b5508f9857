"""A blog behind its gate: an admin, somebody who may only look, and nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.web.asgi import Answer, ask
from tests.web.signed import token_of
from tidemill import Tidemill
from tidemill.web import Role, dashboard
from tidemill.web.server import listen, served
from tidemill_apps.articles.articles import Articles
from tidemill_apps.articles.settings import ArticlesSettings

ADMIN, VIEWER, NOBODY = "admin", "viewer", ""
QUICK = {"linger": 0.0, "requests_per_window": 0, "minding_seconds": 0.2, "retry_seconds": 0.05}


class Blog:
    def __init__(self, folder: Path, **settings: Any) -> None:
        self.app = Tidemill(f"sqlite:///{folder / 'jobs.db'}")
        given = {
            "database_url": f"sqlite:///{folder / 'articles.db'}",
            "qdrant_path": str(folder / "vectors"),
            **QUICK,
            **settings,
        }
        self.articles = Articles(self.app, ArticlesSettings(**given))
        self.served = dashboard(self.app)
        self.tokens: dict[str, str] = {}

    async def call(
        self, method: str, path: str, body: Any = None, *, who: str = ADMIN, **headers: str
    ) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if who:
            named["authorization"] = f"Bearer {await self.token(who)}"
        sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if sent:
            named.setdefault("content-type", "application/json")
        return await ask(self.served, method, path, headers=named, body=sent)

    async def write(self, title: str = "潮汐磨坊", content: str = "潮水带动石磨。", **more: Any) -> int:
        """An article by the API; its id."""
        answer = await self.call("POST", "/api/post", {"title": title, "content": content, **more})
        assert answer.status == 200, answer.text
        number: int = answer.json["data"]["id"]
        return number

    async def embedded(self, *ids: int) -> None:
        """Until the newest job of each has ended."""
        for number in ids:
            post = await self.articles.posts.get(number)
            assert post is not None
            assert post.rag_job
            await self.app.job(post.rag_job).result(30)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        worker = self.app.worker()
        running = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await running

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Over HTTP; its address."""
        socket = listen("127.0.0.1", 0, chosen=True)
        async with served(self.app, socket):
            yield f"http://127.0.0.1:{socket.getsockname()[1]}"

    async def token(self, who: str) -> str:
        if who not in self.tokens:
            self.tokens[who] = await token_of(self.app, Role(who), who)
        return self.tokens[who]


@asynccontextmanager
async def blog_in(folder: Path, **settings: Any) -> AsyncIterator[Blog]:
    blog = Blog(folder, **settings)
    async with blog.app:
        try:
            yield blog
        finally:
            await blog.articles.close()
