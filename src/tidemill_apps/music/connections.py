"""Connections to the chat model, the embeddings API and the music server. A simulator replaces providers
without a key, and sample songs replace a music server that is not configured."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import tomllib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import httpx2
import msgspec
from msgspec.structs import replace

from tidemill import Tidemill
from tidemill.testing.simulator import Quota, SimulatorCall, SimulatorOptions
from tidemill_apps.common import providers
from tidemill_apps.common.model_clients import ChatModel, EmbeddingModel, ProviderAccount
from tidemill_apps.common.providers import run_simulator, use_simulator
from tidemill_apps.music.limits import EMBEDDING_QUEUE, FULL_QUEUE, METADATA_QUEUE
from tidemill_apps.music.settings import MusicSettings
from tidemill_apps.music.subsonic import SubsonicClient
from tidemill_apps.music.sync import SongSource
from tidemill_apps.music.tables import Track

ProviderKind = Literal["chat", "embeddings"]
PROVIDER_KINDS: tuple[ProviderKind, ...] = get_args(ProviderKind)
PROVIDER_OUTPUTS: dict[ProviderKind, str] = {"chat": "the descriptions", "embeddings": "the vectors"}
PROVIDERS_BY_QUEUE: dict[str, tuple[ProviderKind, ...]] = {
    FULL_QUEUE: PROVIDER_KINDS,
    METADATA_QUEUE: ("chat",),
    EMBEDDING_QUEUE: ("embeddings",),
}
"""The provider calls of one job of each queue, one call each."""


def find_account(settings: MusicSettings, provider: ProviderKind) -> ProviderAccount:
    return settings.chat if provider == "chat" else settings.embeddings


def find_simulated_providers(settings: MusicSettings) -> tuple[ProviderKind, ...]:
    """Returns the providers that are simulated. A provider is simulated if its account has neither a key nor
    an address, or has the mark `simulator`."""
    return tuple(
        provider
        for provider in PROVIDER_KINDS
        if (account := find_account(settings, provider)).needs_simulator or account.simulator
    )


def describe_simulation(settings: MusicSettings) -> str:
    """Returns a sentence that says which providers are simulated and which real providers are called."""
    simulated = find_simulated_providers(settings)
    made_up = " and ".join(f"{provider} ({PROVIDER_OUTPUTS[provider]})" for provider in simulated)
    real = [
        f"; {provider} ({PROVIDER_OUTPUTS[provider]}) is not simulated: "
        f"{find_account(settings, provider).label} is called, and paid"
        for provider in PROVIDER_KINDS
        if provider not in simulated
    ]
    return f"the simulator stands in for {made_up}{''.join(real)}"


@cache
def load_sample_tracks() -> tuple[Track, ...]:
    text = Path(__file__).with_name("sample_songs.toml").read_text(encoding="utf-8")
    listed = tomllib.loads(text)["songs"]
    return tuple(
        Track(id=f"sample-{number:03}", title=title, artist=artist, genre=genre)
        for number, (title, artist, genre) in enumerate(listed, start=1)
    )


class SampleSource:
    """The sample songs as a song source. It never changes."""

    url = "the sample"

    async def last_modified(self) -> int:
        return len(load_sample_tracks())

    async def pages(self) -> AsyncIterator[list[Track]]:
        yield list(load_sample_tracks())


_CHINESE = re.compile(r"[\u3400-\u9fff]")


class _SimulatedScene(msgspec.Struct, frozen=True):
    words: tuple[str, ...]
    english: tuple[str, str, str]
    chinese: tuple[str, str, str]
    energy: int


class _SceneFile(msgspec.Struct, frozen=True):
    scene: tuple[_SimulatedScene, ...]


def simulate_descriptions(asked: SimulatorCall) -> str:
    """Returns the simulated answer of the chat model, as JSON. It describes the songs that the last text of
    the call lists."""
    listed = msgspec.json.decode(asked.texts[-1], type=list[dict[str, str]])
    return msgspec.json.encode({"songs": [_simulate_entry(song) for song in listed]}).decode()


@cache
def _load_scenes() -> tuple[_SimulatedScene, ...]:
    text = (Path(__file__).parent / "simulated_scenes.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _SceneFile).scene


def _simulate_entry(song: dict[str, str]) -> dict[str, Any]:
    title, artist = song["title"], song["artist"]
    scene = next(one for one in _load_scenes() if any(word in title.lower() for word in one.words))
    chinese = _CHINESE.search(title) is not None
    mood, thing, where = scene.chinese if chinese else scene.english
    genre = _pick(artist, ("民乐", "独奏", "合奏") if chinese else ("Folk", "Chamber", "Orchestral"))
    return {
        "id": song["id"],
        "vector_anchor": {
            "acoustic_model": f"《{title}》 {artist} {mood}" if chinese else f"{title} by {artist}, {mood}",
            "semantic_push": f"{thing} {where}" if chinese else f"{thing}, {where}",
        },
        "embedding_tags": {
            "mood_coord": [mood],
            "objects": [thing, f"#Genre:{genre}"],
            "scene_tag": where,
            "spectrum": _pick(title, ("low", "mid", "high", "full")),
            "energy": scene.energy,
        },
        "is_instrumental": _pick(f"{title}{artist}", ("no", "yes")) == "yes",
    }


def _pick(seed: str, among: tuple[str, ...]) -> str:
    return among[hashlib.sha256(seed.encode()).digest()[0] % len(among)]


SIMULATED_LATENCY_SECONDS = (1.0, 3.0)
"""Duration of a simulated call, minimum and maximum."""
HTTP_TIMEOUT_SECONDS = 60.0
_log = logging.getLogger("tidemill_apps")


class OpenMusicConnections:
    def __init__(self, chat: ChatModel, embeddings: EmbeddingModel, source: SongSource) -> None:
        self.chat, self.embeddings, self.source = chat, embeddings, source


class MusicConnections:
    def __init__(self, app: Tidemill, settings: MusicSettings) -> None:
        self._app, self._settings = app, settings
        self._stack = AsyncExitStack()
        self._opened: OpenMusicConnections | None = None
        self._lock = asyncio.Lock()

    async def open(self) -> OpenMusicConnections:
        async with self._lock:
            if self._opened is None:
                self._opened = await self._open()
            return self._opened

    async def close(self) -> None:
        """Closes the connections. They can be opened again."""
        self._opened = None
        await self._stack.aclose()

    async def _open(self) -> OpenMusicConnections:
        accounts = [self._settings.chat, self._settings.embeddings]
        if any(account.needs_simulator for account in accounts):
            accounts = await self._use_simulator(accounts)
        chat, embeddings = providers.open_chat_model(accounts[0]), providers.open_embedding_model(accounts[1])
        self._stack.push_async_callback(chat.close)
        self._stack.push_async_callback(embeddings.close)
        return OpenMusicConnections(chat, embeddings, await self._open_source())

    async def _use_simulator(self, accounts: list[ProviderAccount]) -> list[ProviderAccount]:
        calls = self._settings.calls
        quotas = [Quota.rolling("requests", calls.per_minute, per=self._settings.minute_seconds)]
        if calls.per_day:
            quotas.append(Quota.day("requests", calls.per_day, zone=calls.zone))
        dialect = next(account.provider for account in accounts if account.needs_simulator)
        server = await self._stack.enter_async_context(
            run_simulator(
                dialect,
                quotas,
                clock=self._app.clock,
                replies=simulate_descriptions,
                options=SimulatorOptions(latency=SIMULATED_LATENCY_SECONDS),
            )
        )
        _log.warning("%s", describe_simulation(self._settings))
        # One simulator and one dialect for both, because both share one quota.
        return [
            use_simulator(replace(one, provider=dialect), server.url) if one.needs_simulator else one
            for one in accounts
        ]

    async def _open_source(self) -> SongSource:
        subsonic = self._settings.subsonic
        if not subsonic.url:
            return SampleSource()
        client = await self._stack.enter_async_context(httpx2.AsyncClient(timeout=HTTP_TIMEOUT_SECONDS))
        return SubsonicClient(
            subsonic.url,
            subsonic.user,
            subsonic.password,
            client,
            self._app.entropy.secret,
            token=subsonic.auth == "token",
        )
