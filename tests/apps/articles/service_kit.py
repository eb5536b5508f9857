"""The articles application for tests: a blog without its pages, the provider simulator and its log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tidemill import Tidemill
from tidemill.clock import SystemClock
from tidemill.testing.simulator import (
    OpenAIDialect,
    Quota,
    SimulatedProvider,
    SimulatorOptions,
    SimulatorRequest,
    SimulatorServer,
)
from tidemill.testing.simulator.provider import SimulatorExchange
from tidemill_apps.articles.metrics import declare_metrics
from tidemill_apps.articles.posts import Post
from tidemill_apps.articles.service import Articles
from tidemill_apps.articles.settings import ArticlesSettings
from tidemill_apps.common.model_clients import ProviderAccount

PATIENCE = 30.0
T = TypeVar("T")
FAST_SETTINGS = {"linger": 0.05, "requests_per_window": 0, "reconcile_seconds": 0.2, "retry_seconds": 0.05}


class Recording(SimulatedProvider):
    """Records the texts of every billed call."""

    def __init__(self, *quotas: Quota, scale: float, options: SimulatorOptions) -> None:
        super().__init__(OpenAIDialect(), quotas, options, clock=SystemClock(), scale=scale)
        self.calls: list[list[str]] = []
        self.most_at_once = self._at_once = 0

    async def serve(self, request: SimulatorRequest) -> SimulatorExchange:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        served = await super().serve(request)
        self._at_once -= 1
        if served.bill is not None:
            self.calls.append(request.body["input"])
        return served


class Bench:
    """The view of one process: its application, on the same stores as the other processes."""

    def __init__(self, folder: Path, server: SimulatorServer, **settings: Any) -> None:
        self.server = server
        self.app = Tidemill(f"sqlite:///{folder / 'jobs.db'}")
        self.articles = Articles(self.app, settings_for(folder, server.url, **settings))
        declare_metrics(self.app, self.articles.queue)
        self.posts = self.articles.posts

    @property
    def provider(self) -> Recording:
        assert isinstance(self.server.provider, Recording)
        return self.server.provider

    @property
    def calls(self) -> list[list[str]]:
        """Returns the texts of every billed call."""
        return self.provider.calls

    @asynccontextmanager
    async def run_worker(self, **options: Any) -> AsyncIterator[None]:
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

    async def wait_until_settled(self, *ids: int) -> list[Post]:
        """Waits until none of the articles waits or runs."""
        return await until(lambda: self._settled(ids))

    async def _settled(self, ids: tuple[int, ...]) -> list[Post] | None:
        posts = await self.posts.load(ids)
        return posts if all(post.rag_status in ("completed", "failed") for post in posts) else None

    async def found(self, text: str, limit: int = 5) -> list[int]:
        return [one.postId for one in await self.articles.search(text, limit)]


async def until(poll: Callable[[], Awaitable[T | None]], patience: float = PATIENCE) -> T:
    """Polls `poll` and returns its first result that is not None."""
    async with asyncio.timeout(patience):
        while not (found := await poll()):  # noqa: ASYNC110 - it may happen in another process
            await asyncio.sleep(0.02)
    return found


def settings_for(folder: Path, url: str, *, dimensions: int = 256, **settings: Any) -> ArticlesSettings:
    account = ProviderAccount(provider="openai", base_url=f"{url}/v1", dimensions=dimensions, simulator=True)
    given = {
        "database_url": f"sqlite:///{folder / 'articles.db'}",
        "qdrant_path": str(folder / "vectors"),
        "embeddings": account,
        **FAST_SETTINGS,
        **settings,
    }
    return ArticlesSettings(**given)


@asynccontextmanager
async def simulator(*quotas: Quota, scale: float = 1.0, **options: Any) -> AsyncIterator[SimulatorServer]:
    async with SimulatorServer(
        Recording(*quotas, scale=scale, options=SimulatorOptions(**options))
    ) as server:
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
