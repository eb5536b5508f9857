"""Articles on a bench: a blog without its pages, the provider's simulator and its books."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tidemill import Tidemill
from tidemill.clock import SystemClock
from tidemill.testing.providers import OpenAI, Options, Provider, Quota, Request, Server
from tidemill.testing.providers.provider import Served
from tidemill_apps.articles.articles import Articles
from tidemill_apps.articles.posts import Post
from tidemill_apps.articles.settings import ArticlesSettings
from tidemill_apps.common.providers.account import Account

PATIENCE = 30.0
T = TypeVar("T")
QUICK = {"linger": 0.05, "requests_per_window": 0, "minding_seconds": 0.2, "retry_seconds": 0.05}


class Recording(Provider):
    """Knows what the texts of every call were that was billed."""

    def __init__(self, *quotas: Quota, scale: float, options: Options) -> None:
        super().__init__(OpenAI(), quotas, options, clock=SystemClock(), scale=scale)
        self.calls: list[list[str]] = []
        self.most_at_once = self._at_once = 0

    async def serve(self, request: Request) -> Served:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        served = await super().serve(request)
        self._at_once -= 1
        if served.bill is not None:
            self.calls.append(request.body["input"])
        return served


class Bench:
    """One process's view: its application on the same stores as the others'."""

    def __init__(self, folder: Path, server: Server, **settings: Any) -> None:
        self.server = server
        self.app = Tidemill(f"sqlite:///{folder / 'jobs.db'}")
        self.articles = Articles(self.app, settings_for(folder, server.url, **settings))
        self.posts = self.articles.posts

    @property
    def provider(self) -> Recording:
        assert isinstance(self.server.provider, Recording)
        return self.server.provider

    @property
    def calls(self) -> list[list[str]]:
        """The texts of every call that was paid for."""
        return self.provider.calls

    @asynccontextmanager
    async def working(self, **options: Any) -> AsyncIterator[None]:
        worker = self.app.worker(**options)
        running = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await running

    async def post(self, post_id: int) -> Post:
        found = await self.posts.get(post_id)
        assert found is not None
        return found

    async def settled(self, *ids: int) -> list[Post]:
        """Until none of them waits or runs."""
        return await until(lambda: self._settled(ids))

    async def _settled(self, ids: tuple[int, ...]) -> list[Post] | None:
        posts = await self.posts.many(ids)
        return posts if all(post.rag_status in ("completed", "failed") for post in posts) else None

    async def found(self, text: str, limit: int = 5) -> list[int]:
        return [one.postId for one in await self.articles.search(text, limit)]


async def until(look: Callable[[], Awaitable[T | None]], patience: float = PATIENCE) -> T:
    """What `look` finds, as soon as it finds something."""
    async with asyncio.timeout(patience):
        while not (found := await look()):  # noqa: ASYNC110 - in whatever process it happens
            await asyncio.sleep(0.02)
    return found


def settings_for(folder: Path, url: str, *, dimensions: int = 256, **settings: Any) -> ArticlesSettings:
    account = Account(provider="openai", base_url=f"{url}/v1", dimensions=dimensions, simulator=True)
    given = {
        "database_url": f"sqlite:///{folder / 'articles.db'}",
        "qdrant_path": str(folder / "vectors"),
        "embeddings": account,
        **QUICK,
        **settings,
    }
    return ArticlesSettings(**given)


@asynccontextmanager
async def simulator(*quotas: Quota, scale: float = 1.0, **options: Any) -> AsyncIterator[Server]:
    async with Server(Recording(*quotas, scale=scale, options=Options(**options))) as server:
        yield server


@asynccontextmanager
async def bench_in(
    folder: Path, *, options: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Bench]:
    async with simulator(**options or {}) as server:
        bench = Bench(folder, server, **settings)
        async with bench.app:
            try:
                yield bench
            finally:
                await bench.articles.close()
