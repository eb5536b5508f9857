"""The music application against a simulated Gemini over HTTP, with worker processes, as in production.

A minute takes `MINUTE` seconds, for the provider and for the application."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import select

from tests.apps.music.virtual_kit import declare_web
from tests.apps.music.worker_process import Shifted
from tests.quotas.worker_processes import WorkerProcesses
from tidemill import Tidemill
from tidemill.testing.simulator import (
    GeminiDialect,
    Quota,
    SimulatedProvider,
    SimulatorOptions,
    SimulatorServer,
    embed_text,
)
from tidemill_apps.music.connections import simulate_descriptions
from tidemill_apps.music.library import Library
from tidemill_apps.music.llm import format_vector_text
from tidemill_apps.music.pipeline_state import PipelineStage, PipelineState
from tidemill_apps.music.service import Music
from tidemill_apps.music.settings import load_settings
from tidemill_apps.music.tables import SongStatus, songs, unpack_vector

FULL_LENGTH = "TIDEMILL_MUSIC_FULL" in os.environ
MINUTE = 60.0 if FULL_LENGTH else 2.0
JITTER = 0.5
CALLS, STARTS = (5, 2) if FULL_LENGTH else (20, 8)
"""Calls per minute; a full job makes two."""
PATIENCE = 3600.0 if FULL_LENGTH else 100.0


class Studio:
    """The environment of a test. `provider` has the log; `music` is the application of a process that runs
    no jobs."""

    def __init__(
        self, provider: SimulatedProvider, music: Music, processes: WorkerProcesses, dies: Path
    ) -> None:
        self.provider, self.music, self.processes, self.dies = provider, music, processes, dies

    async def until(self, condition: Callable[[PipelineState], bool], what: str) -> PipelineState:
        """Polls the state ten times a second, because another process changes it."""
        async with asyncio.timeout(PATIENCE):
            while not condition(state := await self.music.pipeline.load_state()):  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.1)
        return state

    async def until_idle(self) -> None:
        await self.until(lambda state: state.stage is PipelineStage.IDLE, "idle")

    async def until_served(self) -> None:
        await self.until(lambda state: state.has_worker, "a worker")

    async def restart(self, times: int) -> None:
        """Restarts the workers and waits until a new one runs; killed workers count as alive for a while."""
        before = {worker.id for worker in await self.music.app.inspect.workers()}
        await self.processes.stop()
        await self.processes.start(times)
        async with asyncio.timeout(PATIENCE):
            while {worker.id for worker in await self.music.app.inspect.workers()} <= before:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.1)

    async def counts(self) -> dict[str, int]:
        return {status.value: n for status, n in (await self.music.library.count_by_status()).items() if n}

    async def kill_between_calls(self) -> None:
        """Kills the next worker that has a description and is about to request its vectors."""
        self.dies.touch()
        async with asyncio.timeout(PATIENCE):
            while self.dies.exists():  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)


@asynccontextmanager
async def studio(
    folder: Path,
    provider: SimulatedProvider,
    environment: dict[str, str],
    *,
    jobs: str = "",
    shift: float = 0.0,
) -> AsyncIterator[Studio]:
    url, dies = jobs or f"sqlite:///{folder}/jobs.db", folder / "dies"
    async with SimulatorServer(provider) as server:
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
        music = Music(app, load_settings(given))
        declare_web(music)
        fleet = {**given, "TIDEMILL_URL": url, "FLEET_DIES": str(dies), "FLEET_SHIFT": str(shift)}
        processes = WorkerProcesses("tests.apps.music.worker_process", fleet, folder / "output")
        async with app:
            await music.prepare()
            try:
                yield Studio(provider, music, processes, dies)
            finally:
                await processes.stop()
                await music.close()


def gemini(
    *quotas: Quota, calls: int = CALLS, options: SimulatorOptions | None = None, start: float | None = None
) -> SimulatedProvider:
    """A provider like the free tier: `calls` requests a minute, and the other quotas."""
    minute = Quota.rolling("requests", calls)
    return SimulatedProvider(
        GeminiDialect(),
        [minute, *quotas],
        options or SimulatorOptions(latency=(1.0, 3.0)),
        clock=Shifted(0.0),
        scale=60.0 / MINUTE,
        start=start,
        replies=simulate_descriptions,
    )


async def wrong_vectors(library: Library) -> list[str]:
    """Returns the songs whose vector does not match their text, title and artist."""
    query = select(songs.c.navidrome_id, songs.c.vector).where(songs.c.status == SongStatus.COMPLETED.value)
    async with library.database.reading() as connection:
        stored = {row.navidrome_id: unpack_vector(row.vector) for row in await connection.execute(query)}
    wrong = []
    for row in await library.load_rows(list(stored)):
        text = format_vector_text(row.song, row.description or "", row.tags)
        found = stored[row.navidrome_id]
        expected = embed_text(text, len(found))
        if row.title not in text or row.artist not in text or abs(found - expected).max() > 1e-6:
            wrong.append(row.navidrome_id)
    return wrong
