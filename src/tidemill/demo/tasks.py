"""The application of the demo: four tasks on three queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidemill.app import Tidemill
from tidemill.client.task import Task
from tidemill.core.retry import Retry
from tidemill.errors import GiveUp
from tidemill.tasks.context import Context

UNREADABLE = "a song nobody can describe"
BUSY_LINES = ("3", "8")
"""Songs whose number ends so meet a busy line in their first attempt."""


class Witness:
    """Counts from inside the handlers what the queue promises from outside."""

    def __init__(self) -> None:
        self._now: Counter[str] = Counter()
        self.most_at_once: Counter[str] = Counter()
        self.retries = 0
        self.paused = 0.0
        self.first_letter: float | None = None

    @contextmanager
    def running(self, key: str) -> Iterator[None]:
        self._now[key] += 1
        self.most_at_once[key] = max(self.most_at_once[key], self._now[key])
        try:
            yield
        finally:
            self._now[key] -= 1


@dataclass(frozen=True)
class Demo:
    app: Tidemill
    witness: Witness
    describe: Task[[str], int]
    fetch: Task[[str, int], str]
    send: Task[[int], None]
    play: Task[[], None]
    playing: asyncio.Event


def build(url: str) -> Demo:
    app, witness, playing = Tidemill(url), Witness(), asyncio.Event()
    app.queue("songs", weight=2)
    app.queue("hosts", key_concurrency=1)
    app.queue("mail")

    @app.task(name="songs:describe", queue="songs", retry=Retry(attempts=3, first=1, jitter=0))
    async def describe(ctx: Context, title: str) -> int:
        if title == UNREADABLE:
            raise GiveUp("the answer cannot be read")
        if ctx.attempt == 1 and title.endswith(BUSY_LINES):
            raise ConnectionError("the line is busy")
        witness.retries += ctx.attempt - 1
        for quarter in range(1, 5):
            await asyncio.sleep(0.1)
            await ctx.progress(quarter / 4)
        return len(title)

    @app.task(name="hosts:fetch", queue="hosts", key=lambda host, page: host)  # noqa: ARG005 - called by name
    async def fetch(host: str, page: int) -> str:
        with witness.running(host):
            await asyncio.sleep(0.4)
        return f"{host}/{page}"

    @app.task(name="mail:send", queue="mail")
    async def send(number: int) -> None:
        if witness.first_letter is None:
            witness.first_letter = asyncio.get_running_loop().time()
        await asyncio.sleep(0.05 + number * 0.01)

    @app.task(name="songs:play", queue="songs")
    async def play() -> None:
        playing.set()
        await asyncio.sleep(600)

    return Demo(app, witness, describe, fetch, send, play, playing)
