"""The music application in one process, with time that passes when the test lets it: the provider counts by
the same clock, over real HTTP, in windows of real minutes and days."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.apps.music.libraries import track
from tests.servers.program import HOST, free_port
from tests.web.asgi import Answer, ask
from tests.web.signed import Browser, token_of
from tidemill import Tidemill, testing
from tidemill.testing.providers import Answer as Reply
from tidemill.testing.providers import Gemini, Options, Provider, Quota
from tidemill.testing.providers import Server as ProviderServer
from tidemill.web import Role
from tidemill.web.serving import Server
from tidemill_apps.common.providers.account import Account
from tidemill_apps.music.music import Music
from tidemill_apps.music.pipeline import Start
from tidemill_apps.music.settings import CallSettings, MusicSettings
from tidemill_apps.music.simulated import describe_songs
from tidemill_apps.music.standing import Stage

PER_MINUTE = 5


class World:
    def __init__(self, music: Music, kit: testing.AsyncKit, provider: Provider) -> None:
        self.music, self.kit, self.provider = music, kit, provider
        self.pipeline = music.pipeline
        self.visitors = Visitors(music.app)
        self.call = self.visitors.call

    async def start(self, **options: Any) -> None:
        """Until its jobs are enqueued, and those that may start have."""
        await self.pipeline.start(Start(skip_sync=True, **options))
        await self.kit.run_until_idle(check=False)

    def lose_answers(self, monkeypatch: pytest.MonkeyPatch, *lost: bool) -> None:
        """Of the groups of jobs that are sent from now on: they are in the store, and who sent them dies."""
        app, which = self.music.app, iter(lost)
        send = app.enqueue_many

        async def answers_too_late(requests: object) -> object:
            handles: object = await send(requests)  # type: ignore[arg-type]
            if next(which, False):
                raise ConnectionError("gone after the commit")
            return handles

        monkeypatch.setattr(app, "enqueue_many", answers_too_late)

    async def stage(self) -> Stage:
        return (await self.pipeline.standing()).stage

    async def counts(self) -> dict[str, int]:
        return {status.value: n for status, n in (await self.music.library.counts()).items() if n}

    async def run_until_idle(self, seconds: float = 86_400.0, step: float = 300.0) -> float:
        """How many seconds it took, to within a step. Each begins and ends a worker, which is what takes
        real time."""
        passed = 0.0
        while await self.stage() is not Stage.IDLE:
            assert passed < seconds, f"not idle after {passed:g} s: {await self.pipeline.standing()}"
            await self.kit.run_for(min(step, seconds - passed), check=False)
            passed += step
        return passed


@asynccontextmanager
async def world(
    folder: Path,
    count: int = 0,
    *,
    quotas: tuple[Quota, ...] = (Quota.rolling("requests", PER_MINUTE),),
    options: Options | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    """With so many songs that wait."""
    port = free_port()
    account = Account(base_url=f"http://{HOST}:{port}", simulator=True)
    given = MusicSettings(
        database_url=f"sqlite:///{folder}/music.db",
        chat=account,
        embeddings=account,
        calls=CallSettings(per_minute=PER_MINUTE, per_day=0),
    )
    app = Tidemill(f"sqlite:///{folder}/jobs.db")
    music = Music(app, replace(given, **settings))
    async with testing.kit(app) as kit:
        provider = Provider(Gemini(), quotas, options or Options(), clock=kit.clock, replies=describe_songs)
        async with ProviderServer(provider, port=port):
            await music.prepare()
            await music.library.upsert([track(number) for number in range(count)])
            try:
                yield World(music, kit, provider)
            finally:
                await music.close()


class Bare(Gemini):
    """Refuses with 429 and no words, as proxies do."""

    def refuse(self, asked: Any, told: Any) -> Reply:
        return Reply(429, {}, {"error": "too many"})


class Visitors:
    """Who asks the API and the pages: an operator, somebody who may only look, and nobody."""

    def __init__(self, app: Tidemill) -> None:
        self._app, self._server = app, Server(app)
        self._tokens: dict[str, str] = {}

    async def call(
        self, method: str, path: str, body: Any = None, *, who: str = "operator", **headers: str
    ) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if who:
            named["authorization"] = f"Bearer {await self._token(who)}"
        if body is not None:
            named.setdefault("content-type", "application/json")
        sent = b"" if body is None else json.dumps(body).encode()
        return await ask(self._server.starlette, method, path, headers=named, body=sent)

    async def _token(self, who: str) -> str:
        if who not in self._tokens:
            self._tokens[who] = await token_of(self._app, Role(who), who)
        return self._tokens[who]

    async def browser(self, who: str = "operator") -> Browser:
        """Somebody who is signed in."""
        browser = Browser(self._server)
        await browser.sign_in(await self._token(who))
        return browser
