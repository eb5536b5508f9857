"""When tokens were last used: noted in memory, and written down now and then. Reading changes nothing in the
store while somebody waits for it."""

from __future__ import annotations

import asyncio
import logging

from tidemill.access.tokens import COARSE
from tidemill.app import Tidemill
from tidemill.errors import TidemillError

LATER = 60.0


class Uses:
    def __init__(self, app: Tidemill) -> None:
        self._app = app
        self._noted: dict[str, float] = {}
        self._written: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def note(self, token: str) -> None:
        now = self._app.clock.wall()
        if now - self._written.get(token, 0.0) < COARSE:
            return
        self._noted[token] = now
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LATER, self._begin)

    async def write(self) -> None:
        """Only into a store that is open: whoever closed it has ended."""
        noted, self._noted = self._noted, {}
        if self._app.client.store_here() is None:
            return
        for token, wall in noted.items():
            self._written[token] = wall
            await self._app.access.tokens.mark_used(token, wall)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        self._timer = None
        self._writing = asyncio.create_task(self._try_to_write(), name="tidemill uses of tokens")

    async def _try_to_write(self) -> None:
        try:
            await self.write()
        except TidemillError as error:
            logging.getLogger("tidemill").warning("when tokens were used cannot be written down: %s", error)
