"""The podcasts application for tests: on a folder or a bucket, with espeak-ng or the speech simulator."""

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
from tidemill.clock import SystemClock
from tidemill.testing.simulator import (
    OpenAIDialect,
    Quota,
    SimulatedProvider,
    SimulatorOptions,
    SimulatorServer,
)
from tidemill.web import Role, dashboard
from tidemill_apps.common.object_storage import StorageSettings
from tidemill_apps.common.speech import SpeechSettings
from tidemill_apps.podcasts.feed import PodcastFeedRoutes
from tidemill_apps.podcasts.pages import PodcastPages
from tidemill_apps.podcasts.routes import PodcastRoutes
from tidemill_apps.podcasts.service import Podcasts
from tidemill_apps.podcasts.settings import PodcastsSettings
from tidemill_apps.podcasts.tables import Podcast

ADMIN, OPERATOR, VIEWER, ANONYMOUS = "admin", "operator", "viewer", ""
PUBLIC_URL = "http://127.0.0.1:8750"


class Studio:
    """One process: the application, its dashboard, and users of every role."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.app = Tidemill(f"sqlite:///{folder / 'jobs.db'}")
        given = {
            "database_url": f"sqlite:///{folder / 'podcasts.db'}",
            "storage": StorageSettings(url=str(folder / "files")),
            "retry_seconds": 0.05,
            "reconcile_seconds": 0.1,
            **settings,
        }
        self.podcasts = Podcasts(self.app, PodcastsSettings(**given))
        self.feeds = PodcastFeedRoutes(self.podcasts)
        self.feeds.declare()
        PodcastRoutes(self.podcasts, self.feeds).declare()
        PodcastPages(self.podcasts, self.feeds).declare()
        self.served = dashboard(self.app)
        self._tokens: dict[str, str] = {}

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

    async def token(self, who: str) -> str:
        if who not in self._tokens:
            self._tokens[who] = await create_token(self.app, Role(who), who)
        return self._tokens[who]

    async def work(self) -> None:
        """Runs a worker until nothing is left to do."""
        await self.app.worker(until_idle=True).run()

    async def podcast(self, podcast_id: int) -> Podcast:
        found = await self.podcasts.episodes.get(podcast_id)
        assert found is not None
        return found

    async def until(self, podcast_id: int, *statuses: str, patience: float = 60.0) -> Podcast:
        """Polls the row until it has one of the statuses; another task or process changes it."""
        async with asyncio.timeout(patience):
            while (found := await self.podcast(podcast_id)).status not in statuses:  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.02)
        return found

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
async def studio_in(folder: Path, **settings: Any) -> AsyncIterator[Studio]:
    studio = Studio(folder, **settings)
    async with studio.app:
        try:
            yield studio
        finally:
            await studio.podcasts.close()


@asynccontextmanager
async def speech_simulator(*quotas: Quota, **options: Any) -> AsyncIterator[SimulatorServer]:
    provider = SimulatedProvider(OpenAIDialect(), quotas, SimulatorOptions(**options), clock=SystemClock())
    async with SimulatorServer(provider) as server:
        yield server


def simulated_speech(url: str, **settings: Any) -> SpeechSettings:
    return SpeechSettings(**{"url": f"{url}/v1", "simulator": True, **settings})
