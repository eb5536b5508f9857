"""What goes on beside the jobs of a worker: looked at again and again, and never the end of anything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import structlog

from tidemill import TidemillError

log = structlog.get_logger("tidemill_apps.music")


class Repeated:
    """`look` every so many seconds, and whenever it is woken. What goes wrong, such as a database that is
    away, is told once, as `failing`, and tried again."""

    def __init__(self, look: Callable[[], Awaitable[object]], every: float, *, failing: str) -> None:
        self._look, self._every, self._failing = look, every, failing
        self._wake: Callable[[], object] | None = None

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """At the end a look that is under way is waited for: what is broken off in the middle of a
        transaction leaves its connection to others."""
        loop, woken, over = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(woken.set)
        running = asyncio.create_task(self._run(woken, over))
        try:
            yield
        finally:
            self._wake = None
            over.set()
            woken.set()
            await running

    def wake(self) -> None:
        """Look now, if it goes on in this process. From any thread."""
        if self._wake is not None:
            self._wake()

    async def _run(self, woken: asyncio.Event, over: asyncio.Event) -> None:
        said = ""
        while not over.is_set():
            woken.clear()
            said = await self._looked(said)
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), self._every)

    async def _looked(self, said: str) -> str:
        """What was wrong, in a sentence; it is told when it is not what was said before."""
        try:
            await self._look()
        except Exception as error:  # the next look may do better, and nobody else would tell
            if str(error) != said:
                log.warning(self._failing, error=str(error), exc_info=not isinstance(error, TidemillError))
            return str(error)
        return ""
