"""FastAPI and Starlette: the application is open while the server runs.

api = FastAPI(lifespan=tidemill_lifespan(app))
api = FastAPI(lifespan=tidemill_lifespan(app, my_lifespan, worker=True, concurrency=4))
"""

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
    """Opens the application's store when the server starts and closes it when it stops.

    `lifespan` is the web application's own. It is opened first and closed last: a worker's handlers
    may use what it opened. What it yields is the server's lifespan state, as without this.

    `worker=True` also runs a worker on the server's own loop, with the `options` of a worker. It
    drains before the server ends, within its `grace`; one that cannot start keeps the server from
    starting. Handlers share the loop with the requests: one
    that blocks holds them up, so this suits small programs and development.
    """
    if options and not worker:
        raise ConfigurationError(
            f"{next(iter(options))}: an option of the worker, and there is none; write worker=True"
        )
    if worker:
        app.worker_options(**options)  # a mistake is told when the server is built

    @asynccontextmanager
    async def opened(server: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            state = None if lifespan is None else await stack.enter_async_context(lifespan(server))
            await stack.enter_async_context(app)
            if worker:
                await stack.enter_async_context(working(app, **options))
            yield state

    return opened


@asynccontextmanager
async def working(app: Tidemill, **options: Any) -> AsyncIterator[None]:
    """A worker beside what is in the block, which begins when the worker has started; at its end the
    worker drains. One that breaks meanwhile is logged at once and raises at the end."""
    worker = app.worker(**options)
    running = asyncio.create_task(worker.run(), name="tidemill worker")
    try:
        await _started(worker, running)
        running.add_done_callback(_tell_of_its_end)
        yield
    finally:
        worker.stop()
        await running


async def _started(worker: Worker, running: asyncio.Task[None]) -> None:
    started = asyncio.create_task(worker.started.wait())
    try:
        await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        started.cancel()
    if running.done():
        running.result()  # raises what it ended with


def _tell_of_its_end(running: asyncio.Task[None]) -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        logging.getLogger("tidemill").error(
            "the worker in this server has ended: it answers, and runs no jobs", exc_info=error
        )
