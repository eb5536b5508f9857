"""Periodic work that an application does in its worker processes, without jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import structlog

from tidemill import TidemillError

log = structlog.get_logger("tidemill_apps")


class ApplicationLoop:
    """Calls `run_once` every `every` seconds, and whenever `wake` is called. If `run_once` fails, the loop
    logs the error and calls it again after `every` seconds. `failing` is the text of that log message. The
    same error is not logged twice in a row."""

    def __init__(self, run_once: Callable[[], Awaitable[object]], every: float, *, failing: str) -> None:
        self._run_once, self._every, self._failing = run_once, every, failing
        self._wake: Callable[[], object] | None = None

    @asynccontextmanager
    async def run_in_background(self) -> AsyncIterator[None]:
        """Runs the loop while the `async with` block runs. At the end it waits for the current call of
        `run_once`, because an interrupted transaction would keep its database connection occupied."""
        loop, wake, stopped = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(wake.set)
        running = asyncio.create_task(self._run(wake, stopped))
        try:
            yield
        finally:
            self._wake = None
            stopped.set()
            wake.set()
            await running

    def wake(self) -> None:
        """Makes the loop call `run_once` now. Does nothing if the loop does not run in this process. May be
        called from any thread."""
        if self._wake is not None:
            self._wake()

    async def _run(self, wake: asyncio.Event, stopped: asyncio.Event) -> None:
        last_error = ""
        while not stopped.is_set():
            wake.clear()
            last_error = await self._run_and_log(last_error)
            with suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), self._every)

    async def _run_and_log(self, last_error: str) -> str:
        """Calls `run_once` and returns the text of its error, or an empty text if it succeeded. Logs the
        error unless it equals `last_error`."""
        try:
            await self._run_once()
        except Exception as error:  # the next run may succeed, and nothing else would report it
            if str(error) != last_error:
                log.warning(self._failing, error=str(error), exc_info=not isinstance(error, TidemillError))
            return str(error)
        return ""
