"""An application that child processes import. The environment has its folder and the process id of the
worker."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tidemill import Context, Retry, Tidemill

FOLDER = "TIDEMILL_TEST_CHILD_FOLDER"
WORKER = "TIDEMILL_TEST_CHILD_WORKER"
STORE = "TIDEMILL_TEST_CHILD_STORE"
SET_BY_MIDDLEWARE: ContextVar[str] = ContextVar("SET_BY_MIDDLEWARE", default="not set")
SET_BY_LIFESPAN: ContextVar[str] = ContextVar("SET_BY_LIFESPAN", default="not set")

if STORE not in os.environ:
    os.environ[STORE] = tempfile.mkdtemp()
app = Tidemill(f"sqlite:///{os.environ[STORE]}/jobs.db")
in_memory = Tidemill("memory://")


def note(*words: object) -> None:
    """Writes to a file, so that a test sees what other processes did."""
    with (Path(os.environ[FOLDER]) / "notes").open("a") as notes:
        notes.write(" ".join(map(str, words)) + "\n")


@app.lifespan
async def shared() -> AsyncIterator[dict[str, Any]]:
    if (
        os.environ.get("TIDEMILL_TEST_CHILD_FAILS")
        and str(os.getpid()) != os.environ["TIDEMILL_TEST_CHILD_WORKER"]
    ):
        note("fails")
        raise ConnectionError("no such host")
    SET_BY_LIFESPAN.set("set")
    note("opened", os.getpid())
    yield {"loop": id(asyncio.get_running_loop()), "pid": os.getpid()}
    note("closed", os.getpid())


@app.middleware
async def around(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:
    if ctx.state is not None:
        SET_BY_MIDDLEWARE.set(f"{ctx.task} in {ctx.state['pid']}")
    return await run()


@app.task(name="reads-variable", retry=Retry(attempts=1))
async def reads_variable() -> list[Any]:
    return [os.getpid(), SET_BY_MIDDLEWARE.get()]


@app.task(name="looks", retry=Retry(attempts=1))
async def looks(ctx: Context) -> list[Any]:
    same_loop = ctx.state["loop"] == id(asyncio.get_running_loop())
    return [os.getpid(), ctx.state["pid"], same_loop, SET_BY_LIFESPAN.get()]


@app.task(name="looks-sync", retry=Retry(attempts=1))
def looks_sync(ctx: Context) -> list[Any]:
    in_thread = threading.current_thread() is not threading.main_thread()
    return [os.getpid(), ctx.state["pid"], in_thread, SET_BY_LIFESPAN.get()]


@app.batch_task(name="looks-batch", max_items=4, retry=Retry(attempts=1))
async def looks_batch(ctx: Context, items: list[int]) -> list[list[Any]]:
    return [[os.getpid(), ctx.state["pid"], item, SET_BY_LIFESPAN.get()] for item in items]


@app.task(name="cleans-up", timeout=0.5, retry=Retry(attempts=1))
async def cleans_up() -> None:
    try:
        await asyncio.sleep(600)
    finally:
        note("cleaned", os.getpid())


@app.task(name="gives-up", timeout=0.5, retry=Retry(attempts=1))
def gives_up(ctx: Context) -> None:
    while not ctx.cancelled:
        time.sleep(0.01)
    note("cleaned", os.getpid())


def _local() -> Any:
    @app.task(name="local", retry=Retry(attempts=1))
    async def local(ctx: Context) -> list[Any]:
        return [os.getpid(), ctx.state["pid"], True, SET_BY_LIFESPAN.get()]

    return local


local = _local()


@app.task(name="apart", isolate=True, retry=Retry(attempts=1))
async def apart(ctx: Context) -> list[Any]:
    return [os.getpid(), None if ctx.state is None else ctx.state["pid"]]


@in_memory.task(name="counts", retry=Retry(attempts=1))
async def counts() -> int:
    return os.getpid()


@in_memory.task(name="counts-apart", isolate=True, retry=Retry(attempts=1))
async def counts_apart() -> int:
    return os.getpid()


@in_memory.task(name="enqueues-apart", isolate=True, retry=Retry(attempts=1))
async def enqueues_apart() -> None:
    await counts.enqueue()
