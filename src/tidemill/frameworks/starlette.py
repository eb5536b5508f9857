"""FastAPI and Starlette: opens the Tidemill application while the server runs.

api = FastAPI(lifespan=tidemill_lifespan(app))
api = FastAPI(lifespan=tidemill_lifespan(app, my_lifespan, worker=True, concurrency=4))"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from tidemill.app import Tidemill
from tidemill.errors import ConfigurationError

if TYPE_CHECKING:
    from tidemill.worker.worker import Worker


Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def tidemill_lifespan(
    app: Tidemill, lifespan: Lifespan | None = None, *, worker: bool = False, **options: Any
) -> Lifespan:
    """Returns a lifespan for FastAPI or Starlette. It opens the application's store when the server starts,
    and closes the store when the server stops.

    `lifespan` is the web application's own lifespan. It is opened first and closed last, so handlers can use
    its resources.

    `worker=True` also runs a worker on the server's event loop; `options` are the options of the worker. If
    the worker cannot start, the server does not start. A handler that blocks delays requests, so use this for
    small programs and development."""
    if options and not worker:
        raise ConfigurationError(
            f"{next(iter(options))}: an option of the worker, and there is none; write worker=True"
        )
    if worker:
        app.worker_options(**options)  # raises for wrong options when the server is built

    @asynccontextmanager
    async def opened(server: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            state = None if lifespan is None else await stack.enter_async_context(lifespan(server))
            await stack.enter_async_context(app)
            if worker:
                await stack.enter_async_context(running_worker(app, **options))
            yield state

    return opened


@asynccontextmanager
async def running_worker(app: Tidemill, **options: Any) -> AsyncIterator[None]:
    """Runs a worker during an `async with` block. The worker drains at the end of the block. `options` are
    the options of the worker.

    If the worker fails during the block, the error is raised at the end of the block."""
    worker = app.worker(**options)
    running = asyncio.create_task(worker.run(), name="tidemill worker")
    try:
        await _wait_until_started(worker, running)
        running.add_done_callback(_log_worker_end)
        yield
    finally:
        worker.stop()
        await running


async def _wait_until_started(worker: Worker, running: asyncio.Task[None]) -> None:
    started = asyncio.create_task(worker.started.wait())
    try:
        await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        started.cancel()
    if running.done():
        running.result()  # raises the worker's error


def _log_worker_end(running: asyncio.Task[None]) -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        logging.getLogger("tidemill").error(
            "the worker in this server has ended: it answers, and runs no jobs", exc_info=error
        )
