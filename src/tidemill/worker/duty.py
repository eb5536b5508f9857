"""A chore of the fleet: whether it is this worker's, and when it is called for."""

from __future__ import annotations

import asyncio
import contextlib
import math


class Duty:
    """`at` is when it is to be done next, `until` how long it is this worker's; both on the loop's clock."""

    def __init__(self, name: str, *, led: bool = True) -> None:
        self.name, self.led = name, led
        self.at = 0.0
        self.until = 0.0 if led else math.inf
        self.not_before = 0.0
        self.done = asyncio.Event()
        """That it was done, for whoever clears it first."""
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    @property
    def ours(self) -> bool:
        return self._loop.time() < self.until

    def keep(self, until: float) -> None:
        if until > self.until:
            self.until = until
            self._changed.set()

    def lose(self) -> None:
        self.until = 0.0

    def call(self, at: float = 0.0) -> None:
        """It is to be done by then."""
        if at < self.at:
            self.at = at
            self._changed.set()

    async def is_ours(self) -> None:
        while not self.ours:
            await self._change(None)

    async def called(self) -> None:
        """Returns when it is this worker's and its time has come."""
        while not self.ours or self._loop.time() < self.at:
            await self._change(self.at if self.ours and self.at < math.inf else None)

    async def _change(self, at: float | None) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(at):
                await self._changed.wait()
