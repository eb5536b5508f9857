"""A worker process of the music application, for tests that kill some: `python -m tests.apps.music.fleet`.

FLEET_SHIFT: by how many seconds its wall clock is ahead. FLEET_DIES: a file; while it is there, whoever is
about to ask for vectors removes it and dies at that moment, between the two calls of its job. No job kills
two of them: the third death would be its last.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from tidemill import Tidemill
from tidemill.clock import SystemClock
from tidemill_apps.common.providers.embeddings import Embedded, Embeddings
from tidemill_apps.music.connections import Opened
from tidemill_apps.music.music import Music
from tidemill_apps.music.settings import from_environment

LEASE = 2.0


class Shifted(SystemClock):
    def __init__(self, ahead: float) -> None:
        super().__init__()
        self._ahead = ahead

    def wall(self) -> float:
        return super().wall() + self._ahead


class Dying:
    """Embeddings that nobody may survive asking for."""

    def __init__(self, embeddings: Embeddings, mark: Path) -> None:
        self._embeddings, self._mark = embeddings, mark

    @property
    def dimensions(self) -> int | None:
        return self._embeddings.dimensions

    async def embed(self, texts: Sequence[str], *, mark: str) -> Embedded:
        killed = self._mark.with_suffix(".killed")
        before = killed.read_text().splitlines() if killed.exists() else []
        if self._mark.exists() and mark not in before:
            killed.write_text("\n".join([*before, mark]))
            self._mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return await self._embeddings.embed(texts, mark=mark)

    async def close(self) -> None:
        await self._embeddings.close()


def mortal(music: Music, mark: Path) -> None:
    opened = music.connections.open

    async def open_() -> Opened:
        to = await opened()
        return Opened(to.chat, Dying(to.embeddings, mark), to.source)

    music.connections.open = open_  # type: ignore[method-assign]  # only here anybody dies


def main() -> None:
    app = Tidemill(os.environ["TIDEMILL_URL"], clock=Shifted(float(os.environ.get("FLEET_SHIFT", "0"))))
    music = Music(app, from_environment())
    if mark := os.environ.get("FLEET_DIES"):
        mortal(music, Path(mark))
    app.run_worker(lease=LEASE, heartbeat=LEASE / 4, reclaim_every=0.5, concurrency=4)


if __name__ == "__main__":
    main()
