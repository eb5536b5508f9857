"""The music application in one process, with time that the test controls.

The provider uses the same clock, over real HTTP, in windows of real minutes and days."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.apps.music.library_fixtures import track
from tests.servers.program import HOST, free_port
from tests.web.asgi_client import ClientResponse, send_request
from tests.web.signed_in_client import CookieClient, create_token
from tidemill import Tidemill, testing
from tidemill.testing.simulator import GeminiDialect, Quota, SimulatedProvider, SimulatorOptions
from tidemill.testing.simulator import SimulatorReply as Reply
from tidemill.testing.simulator import SimulatorServer as ProviderServer
from tidemill.web import Role
from tidemill.web.asgi import Dashboard
from tidemill_apps.common.live_settings import declare_live_settings
from tidemill_apps.common.model_clients import ProviderAccount
from tidemill_apps.music.connections import simulate_descriptions
from tidemill_apps.music.pages import declare_pages
from tidemill_apps.music.pipeline_control import PipelineStartRequest
from tidemill_apps.music.pipeline_state import PipelineStage
from tidemill_apps.music.routes import declare_routes
from tidemill_apps.music.service import Music
from tidemill_apps.music.settings import CallSettings, MusicSettings

PER_MINUTE = 5


def declare_web(music: Music) -> None:
    """Declares routes, pages and settings as `tidemill_apps.music.app` does."""
    declare_routes(music)
    declare_pages(music)
    declare_live_settings(music.app, music.live_settings, music.prepare)


class MusicEnvironment:
    def __init__(self, music: Music, kit: testing.AsyncKit, provider: SimulatedProvider) -> None:
        self.music, self.kit, self.provider = music, kit, provider
        self.pipeline = music.pipeline
        self.visitors = Visitors(music.app)
        self.call = self.visitors.call

    async def start(self, **options: Any) -> None:
        """Starts the analysis, and runs its jobs until no more can start."""
        await self.pipeline.start(PipelineStartRequest(skip_sync=True, **options))
        await self.kit.run_until_idle(check=False)

    def lose_answers(self, monkeypatch: pytest.MonkeyPatch, *lost: bool) -> None:
        """Loses the answers of the next groups of jobs: the jobs are in the store, and their sender dies."""
        app, which = self.music.app, iter(lost)
        send = app.enqueue_many

        async def answers_too_late(requests: object) -> object:
            handles: object = await send(requests)  # type: ignore[arg-type]
            if next(which, False):
                raise ConnectionError("gone after the commit")
            return handles

        monkeypatch.setattr(app, "enqueue_many", answers_too_late)

    async def stage(self) -> PipelineStage:
        return (await self.pipeline.load_state()).stage

    async def counts(self) -> dict[str, int]:
        return {status.value: n for status, n in (await self.music.library.count_by_status()).items() if n}

    async def run_until_idle(self, seconds: float = 86_400.0, step: float = 300.0) -> float:
        """Runs until idle; returns the seconds it took, rounded up to a step. Each step starts and stops a
        worker, which takes the real time."""
        passed = 0.0
        while await self.stage() is not PipelineStage.IDLE:
            assert passed < seconds, f"not idle after {passed:g} s: {await self.pipeline.load_state()}"
            await self.kit.run_for(min(step, seconds - passed), check=False)
            passed += step
        return passed


@asynccontextmanager
async def music_environment(
    folder: Path,
    count: int = 0,
    *,
    quotas: tuple[Quota, ...] = (Quota.rolling("requests", PER_MINUTE),),
    options: SimulatorOptions | None = None,
    **settings: Any,
) -> AsyncIterator[MusicEnvironment]:
    """Creates the application with `count` waiting songs."""
    port = free_port()
    account = ProviderAccount(base_url=f"http://{HOST}:{port}", simulator=True)
    given = MusicSettings(
        database_url=f"sqlite:///{folder}/music.db",
        chat=account,
        embeddings=account,
        calls=CallSettings(per_minute=PER_MINUTE, per_day=0),
    )
    app = Tidemill(f"sqlite:///{folder}/jobs.db")
    music = Music(app, replace(given, **settings))
    declare_web(music)
    async with testing.kit(app) as kit:
        provider = SimulatedProvider(
            GeminiDialect(),
            quotas,
            options or SimulatorOptions(),
            clock=kit.clock,
            replies=simulate_descriptions,
        )
        async with ProviderServer(provider, port=port):
            await music.prepare()
            await music.library.upsert([track(number) for number in range(count)])
            try:
                yield MusicEnvironment(music, kit, provider)
            finally:
                await music.close()


class Bare(GeminiDialect):
    """Refuses with 429 without details, as proxies do."""

    def refuse(self, asked: Any, told: Any) -> Reply:
        return Reply(429, {}, {"error": "too many"})


class Visitors:
    """Clients of the API and the pages: an operator, a viewer, and an anonymous one."""

    def __init__(self, app: Tidemill) -> None:
        self._app, self._server = app, Dashboard(app)
        self._tokens: dict[str, str] = {}

    async def call(
        self, method: str, path: str, body: Any = None, *, who: str = "operator", **headers: str
    ) -> ClientResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if who:
            named["authorization"] = f"Bearer {await self._token(who)}"
        if body is not None:
            named.setdefault("content-type", "application/json")
        sent = b"" if body is None else json.dumps(body).encode()
        return await send_request(self._server.starlette, method, path, headers=named, body=sent)

    async def _token(self, who: str) -> str:
        if who not in self._tokens:
            self._tokens[who] = await create_token(self._app, Role(who), who)
        return self._tokens[who]

    async def browser(self, who: str = "operator") -> CookieClient:
        """Returns a signed-in browser."""
        browser = CookieClient(self._server)
        await browser.sign_in(await self._token(who))
        return browser
