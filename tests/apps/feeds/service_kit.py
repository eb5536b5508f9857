"""The feeds application for tests, beside a feed server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.apps.feeds.feed_server import FeedServer, feed_server
from tidemill import Job, Tidemill
from tidemill.core.filters import Filter
from tidemill_apps.feeds.feed_store import Feed, NewFeed
from tidemill_apps.feeds.service import Feeds
from tidemill_apps.feeds.settings import FeedsSettings

PATIENCE = 30.0
FULL_SIZE = "TIDEMILL_FEEDS_FULL" in os.environ
"""True for the long run: a thousand feeds instead of a hundred."""
T = TypeVar("T")
QUICK_SETTINGS: dict[str, Any] = {
    "allowed_addresses": ("127.0.0.0/8",),
    "site_seconds": 0.01,
    "jitter": 0.4,
    "check_seconds": 0.3,
    "fetch_seconds": 5.0,
}


class FeedBench:
    """The application of one process on stores in `folder`, and the server of its feeds."""

    def __init__(self, folder: Path, server: FeedServer, jobs: str = "", **settings: Any) -> None:
        self.server = server
        self.app = Tidemill(jobs or f"sqlite:///{folder / 'jobs.db'}")
        given = {"database_url": f"sqlite:///{folder / 'feeds.db'}", **QUICK_SETTINGS, **settings}
        self.feeds = Feeds(self.app, FeedsSettings(**given))

    async def add(self, path: str = "/feed", interval: int = 60, host: str = "127.0.0.1") -> Feed:
        new = NewFeed(url=self.server.url(path, host), refresh_interval=interval)
        [feed] = await self.feeds.add([new])
        return feed

    async def get(self, feed: Feed) -> Feed:
        found = await self.feeds.store.get(feed.id)
        assert found is not None
        return found

    async def change(self, feed: Feed, **values: Any) -> None:
        """Changes the row as another program does."""
        await self.feeds.store.change(feed.id, **values)

    async def jobs(self, **wanted: Any) -> tuple[Job, ...]:
        return (await self.app.inspect.find(Filter(queue="rss", **wanted), limit=1000)).jobs

    @asynccontextmanager
    async def run_worker(self, **options: Any) -> AsyncIterator[None]:
        worker = self.app.worker(**options)
        running = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await running

    async def wait_for_status(self, feed: Feed, status: str) -> Feed:
        async def poll() -> Feed | None:
            found = await self.get(feed)
            return found if found.last_fetch_status == status else None

        return await until(poll)

    async def wait_for_runs(self, feed: Feed, runs: int) -> Feed:
        """Waits until the feed has ended that many runs."""

        async def poll() -> Feed | None:
            found = await self.get(feed)
            return found if found.state.successes + found.state.failed >= runs else None

        return await until(poll)


async def until(poll: Callable[[], Awaitable[T | None]], patience: float = PATIENCE) -> T:
    """Polls `poll` and returns its first result that is not empty."""
    async with asyncio.timeout(patience):
        while not (found := await poll()):  # noqa: ASYNC110 - it may happen in another process
            await asyncio.sleep(0.02)
    return found


@asynccontextmanager
async def bench_in(folder: Path, jobs: str = "", **settings: Any) -> AsyncIterator[FeedBench]:
    async with feed_server() as server:
        bench = FeedBench(folder, server, jobs, **settings)
        async with bench.app:
            await bench.feeds.store.prepare()
            try:
                yield bench
            finally:
                await bench.feeds.close()
