"""The application of the demo: five tasks on four queues.

At the top of a module, as in any application: the process that runs the poison job finds its
handler by importing it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tidemill.app import Tidemill
from tidemill.core.retry import Retry
from tidemill.demo.surroundings import OWN_SETTINGS, as_if_nothing_were_set
from tidemill.demo.witness import Witness
from tidemill.errors import GiveUp
from tidemill.tasks.context import Context

FILE = Path("tidemill-demo.db")
CRASH_LIMIT = 3
UNREADABLE = "a song nobody can describe"
BUSY_LINES = ("3", "8")
"""Songs whose number ends so meet a busy line in their first attempt."""

with as_if_nothing_were_set():
    app = Tidemill(f"sqlite:///{FILE}", config=OWN_SETTINGS)
app.queue("songs", weight=2)
app.queue("hosts", key_concurrency=1)
app.queue("mail")
app.queue("risky", crash_limit=CRASH_LIMIT)
witness = Witness()
playing = asyncio.Event()


@app.middleware
async def seen(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:
    witness.runs[ctx.job_id] += 1
    return await run()


@app.task(name="songs:describe", queue="songs", retry=Retry(attempts=3, first=1, jitter=0))
async def describe(ctx: Context, title: str) -> int:
    if title == UNREADABLE:
        raise GiveUp("the answer cannot be read")
    if ctx.attempt == 1 and title.endswith(BUSY_LINES):
        raise ConnectionError("the line is busy")
    for quarter in range(1, 5):
        await asyncio.sleep(0.1)
        await ctx.progress(quarter / 4)
    return len(title)


@app.task(name="hosts:fetch", queue="hosts", key=lambda host, page: host)  # noqa: ARG005 - called by name
async def fetch(host: str, page: int) -> str:
    with witness.at_work(host):
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
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        witness.interrupted += 1
        raise


@app.task(name="risky:convert", queue="risky", isolate=True)
def convert(deaths: str) -> None:
    """Kills its process, as a fault in a C library would. The file counts how often it came to that."""
    with Path(deaths).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    os.kill(os.getpid(), signal.SIGKILL)
