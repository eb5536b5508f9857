"""A worker process of the podcasts application, for tests that kill it.

`python -m tests.apps.podcasts.worker_process`

KILL_MARK is a file that names a point. The first worker that reaches the point removes the file and dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tidemill import Tidemill
from tidemill_apps.podcasts.service import Podcasts
from tidemill_apps.podcasts.settings import load_settings

LEASE = 1.5


def die_at(point: str, mark: Path) -> None:
    if mark.exists() and mark.read_text() == point:
        mark.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def make_mortal(podcasts: Podcasts, mark: Path) -> None:
    """Adds the points `call answered`, `part stored`, `audio stored` and `loudness`."""
    speak, put, finish = podcasts.speech.speak, podcasts.storage.put, podcasts.episodes.finish

    def dying(point: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def called(*arguments: Any, **named: Any) -> Any:
            result = await call(*arguments, **named)
            die_at(point, mark)
            return result

        return called

    async def dying_put(key: str, content: bytes | Path) -> None:
        if key.endswith(".mp3"):
            die_at("loudness", mark)
        await put(key, content)
        die_at("part stored" if key.startswith("parts/") else "file stored", mark)

    async def dying_finish(*arguments: Any) -> bool:
        die_at("audio stored", mark)
        return await finish(*arguments)

    replaced: Any = podcasts
    replaced.speech.speak = dying("call answered", speak)
    replaced.storage.put = dying_put
    replaced.episodes.finish = dying_finish


def main() -> None:
    app = Tidemill(os.environ["TIDEMILL_URL"])
    podcasts = Podcasts(app, load_settings())
    make_mortal(podcasts, Path(os.environ["KILL_MARK"]))
    app.run_worker(lease=LEASE, heartbeat=LEASE / 4, reclaim_every=0.3)


if __name__ == "__main__":
    main()
