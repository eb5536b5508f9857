"""Whom the application talks to: a model, an embeddings API, a music server. Opened by the first use, in a
worker or in a process that only serves pages; a simulator stands in for a provider there is no key for."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

import httpx2
from msgspec.structs import replace

from tidemill import Tidemill
from tidemill.testing.providers import Options, Quota
from tidemill_apps.common.providers import chosen
from tidemill_apps.common.providers.account import Account
from tidemill_apps.common.providers.chat import Chat
from tidemill_apps.common.providers.embeddings import Embeddings
from tidemill_apps.common.simulation import at_simulator, simulated
from tidemill_apps.music.halves import is_simulated, told_halves
from tidemill_apps.music.sample import Sample
from tidemill_apps.music.settings import MusicSettings
from tidemill_apps.music.simulated import describe_songs
from tidemill_apps.music.subsonic import Subsonic
from tidemill_apps.music.syncing import Source

LATENCY = (1.0, 3.0)
"""Seconds a simulated call takes."""
TIMEOUT = 60.0
_log = logging.getLogger("tidemill_apps")


class Opened:
    def __init__(self, chat: Chat, embeddings: Embeddings, source: Source) -> None:
        self.chat, self.embeddings, self.source = chat, embeddings, source


class Connections:
    def __init__(self, app: Tidemill, settings: MusicSettings) -> None:
        self._app, self._settings = app, settings
        self._stack = AsyncExitStack()
        self._opened: Opened | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> Opened:
        async with self._turn:
            if self._opened is None:
                self._opened = await self._open()
            return self._opened

    async def close(self) -> None:
        """They may be opened again."""
        self._opened = None
        await self._stack.aclose()

    async def _open(self) -> Opened:
        accounts = [self._settings.chat, self._settings.embeddings]
        if any(is_simulated(account) for account in accounts):
            accounts = await self._at_simulator(accounts)
        chat, embeddings = chosen.chat(accounts[0]), chosen.embeddings(accounts[1])
        self._stack.push_async_callback(chat.close)
        self._stack.push_async_callback(embeddings.close)
        return Opened(chat, embeddings, await self._source())

    async def _at_simulator(self, accounts: list[Account]) -> list[Account]:
        calls = self._settings.calls
        quotas = [Quota.rolling("requests", calls.per_minute, per=self._settings.minute_seconds)]
        if calls.per_day:
            quotas.append(Quota.day("requests", calls.per_day, zone=calls.zone))
        dialect = next(account.provider for account in accounts if is_simulated(account))
        server = await self._stack.enter_async_context(
            simulated(
                dialect,
                quotas,
                clock=self._app.clock,
                replies=describe_songs,
                options=Options(latency=LATENCY),
            )
        )
        _log.warning("%s", told_halves(self._settings))
        # One simulator for both, because they share one quota: it speaks one provider's words.
        return [
            at_simulator(replace(one, provider=dialect), server.url) if is_simulated(one) else one
            for one in accounts
        ]

    async def _source(self) -> Source:
        subsonic = self._settings.subsonic
        if not subsonic.url:
            return Sample()
        client = await self._stack.enter_async_context(httpx2.AsyncClient(timeout=TIMEOUT))
        return Subsonic(
            subsonic.url,
            subsonic.user,
            subsonic.password,
            client,
            self._app.entropy.secret,
            token=subsonic.auth == "token",
        )
