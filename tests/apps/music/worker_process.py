"""A worker process of the music application, for tests that kill it.

`python -m tests.apps.music.worker_process`

FLEET_SHIFT is how many seconds its wall clock is ahead. FLEET_DIES is a file. While it exists, the next
worker that is about to request vectors removes it and dies, between the two calls of its job. No job
kills two workers: the third death would make it fail."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from tidemill import Tidemill
from tidemill.clock import SystemClock
from tidemill_apps.common.model_clients import EmbeddingModel, EmbeddingResult
from tidemill_apps.music.connections import OpenMusicConnections
from tidemill_apps.music.service import Music
from tidemill_apps.music.settings import load_settings

LEASE = 2.0


class Shifted(SystemClock):
    def __init__(self, ahead: float) -> None:
        super().__init__()
        self._ahead = ahead

    def wall(self) -> float:
        return super().wall() + self._ahead


class Dying:
    """Embeddings that kill the process on request."""

    def __init__(self, embeddings: EmbeddingModel, mark: Path) -> None:
        self._embeddings, self._mark = embeddings, mark

    @property
    def dimensions(self) -> int | None:
        return self._embeddings.dimensions

    async def embed(self, texts: Sequence[str], *, call_id: str) -> EmbeddingResult:
        killed = self._mark.with_suffix(".killed")
        before = killed.read_text().splitlines() if killed.exists() else []
        if self._mark.exists() and call_id not in before:
            killed.write_text("\n".join([*before, call_id]))
            self._mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return await self._embeddings.embed(texts, call_id=call_id)

    async def close(self) -> None:
        await self._embeddings.close()


def mortal(music: Music, mark: Path) -> None:
    opened = music.connections.open

    async def open_() -> OpenMusicConnections:
        to = await opened()
        return OpenMusicConnections(to.chat, Dying(to.embeddings, mark), to.source)

    music.connections.open = open_  # type: ignore[method-assign]  # only here anybody dies


def main() -> None:
    app = Tidemill(os.environ["TIDEMILL_URL"], clock=Shifted(float(os.environ.get("FLEET_SHIFT", "0"))))
    music = Music(app, load_settings())
    if mark := os.environ.get("FLEET_DIES"):
        mortal(music, Path(mark))
    app.run_worker(lease=LEASE, heartbeat=LEASE / 4, reclaim_every=0.5, concurrency=4)


if __name__ == "__main__":
    main()
