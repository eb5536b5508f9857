"""The music application against a simulated Gemini over HTTP, with worker processes, as people run it.

A minute takes `MINUTE` seconds, for the provider and for the application alike.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import select

from tests.apps.music.fleet import Shifted
from tests.quotas.processes import Processes
from tidemill import Tidemill
from tidemill.testing.providers import Gemini, Options, Provider, Quota, Server, vector
from tidemill_apps.music.describing import vector_text
from tidemill_apps.music.library import Library
from tidemill_apps.music.music import Music
from tidemill_apps.music.settings import from_environment
from tidemill_apps.music.simulated import describe_songs
from tidemill_apps.music.songs import Status
from tidemill_apps.music.standing import Stage, Standing
from tidemill_apps.music.tables import songs
from tidemill_apps.music.vectors import unpacked

FULL_LENGTH = "TIDEMILL_MUSIC_FULL" in os.environ
MINUTE = 60.0 if FULL_LENGTH else 2.0
JITTER = 0.5
CALLS, STARTS = (5, 2) if FULL_LENGTH else (20, 8)
"""Per minute: a full job makes two calls."""
PATIENCE = 3600.0 if FULL_LENGTH else 100.0


class Studio:
    """`provider` keeps the books; `music` is the application as somebody who only looks and steers has it."""

    def __init__(self, provider: Provider, music: Music, processes: Processes, dies: Path) -> None:
        self.provider, self.music, self.processes, self.dies = provider, music, processes, dies

    async def until(self, said: Callable[[Standing], bool], what: str) -> Standing:
        """Looked at ten times a second: it is another process that goes on."""
        async with asyncio.timeout(PATIENCE):
            while not said(stands := await self.music.pipeline.standing()):  # noqa: ASYNC110 - as told
                await asyncio.sleep(0.1)
        return stands

    async def until_idle(self) -> None:
        await self.until(lambda stands: stands.stage is Stage.IDLE, "idle")

    async def until_served(self) -> None:
        await self.until(lambda stands: stands.served, "a worker")

    async def restart(self, times: int) -> None:
        """Until one of the new workers serves: who was killed is taken for alive for a while."""
        before = {worker.id for worker in await self.music.app.inspect.workers()}
        await self.processes.stop()
        await self.processes.start(times)
        async with asyncio.timeout(PATIENCE):
            while {worker.id for worker in await self.music.app.inspect.workers()} <= before:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.1)

    async def counts(self) -> dict[str, int]:
        return {status.value: n for status, n in (await self.music.library.counts()).items() if n}

    async def kill_between_calls(self) -> None:
        """The next worker that has a description and is about to ask for its vectors."""
        self.dies.touch()
        async with asyncio.timeout(PATIENCE):
            while self.dies.exists():  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)


@asynccontextmanager
async def studio(
    folder: Path, provider: Provider, environment: dict[str, str], *, jobs: str = "", shift: float = 0.0
) -> AsyncIterator[Studio]:
    url, dies = jobs or f"sqlite:///{folder}/jobs.db", folder / "dies"
    async with Server(provider) as server:
        given = {
            "MUSIC_DATABASE_URL": f"sqlite:///{folder}/music.db",
            "MUSIC_CHAT_BASE_URL": server.url,
            "MUSIC_CHAT_SIMULATOR": "true",
            "MUSIC_EMBEDDINGS_BASE_URL": server.url,
            "MUSIC_EMBEDDINGS_SIMULATOR": "true",
            "MUSIC_EMBEDDINGS_DIMENSIONS": "128",
            "MUSIC_MINUTE_SECONDS": str(MINUTE),
            "MUSIC_CALLS_PER_MINUTE": str(CALLS),
            "MUSIC_CALLS_PER_DAY": "0",
            "MUSIC_CALLS_JITTER": str(JITTER),
            "MUSIC_METADATA_STARTS": str(STARTS),
            "MUSIC_CALL_SECONDS": "0.1",
            **environment,
        }
        app = Tidemill(url, clock=Shifted(shift))
        music = Music(app, from_environment(given))
        fleet = {**given, "TIDEMILL_URL": url, "FLEET_DIES": str(dies), "FLEET_SHIFT": str(shift)}
        processes = Processes("tests.apps.music.fleet", fleet, folder / "output")
        async with app:
            await music.prepare()
            try:
                yield Studio(provider, music, processes, dies)
            finally:
                await processes.stop()
                await music.close()


def gemini(
    *quotas: Quota, calls: int = CALLS, options: Options | None = None, start: float | None = None
) -> Provider:
    """The free tier: so many requests a minute, and what else is said."""
    minute = Quota.rolling("requests", calls)
    return Provider(
        Gemini(),
        [minute, *quotas],
        options or Options(latency=(1.0, 3.0)),
        clock=Shifted(0.0),
        scale=60.0 / MINUTE,
        start=start,
        replies=describe_songs,
    )


async def wrong_vectors(library: Library) -> list[str]:
    """Songs whose vector is not that of their own text, with their own title and artist."""
    query = select(songs.c.navidrome_id, songs.c.vector).where(songs.c.status == Status.COMPLETED.value)
    async with library.database.reading() as connection:
        stored = {row.navidrome_id: unpacked(row.vector) for row in await connection.execute(query)}
    wrong = []
    for row in await library.stored(list(stored)):
        text = vector_text(row.song, row.description or "", row.tags)
        found = stored[row.navidrome_id]
        expected = vector(text, len(found))
        if row.title not in text or row.artist not in text or abs(found - expected).max() > 1e-6:
            wrong.append(row.navidrome_id)
    return wrong
