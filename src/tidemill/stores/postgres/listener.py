"""One listener of one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol


class Arming(Protocol):
    """Whoever passes on what a listener wants to hear."""

    def arm(self, listener: PostgresListener) -> int: ...
    def disarm(self, listener: PostgresListener) -> None: ...


class PostgresListener:
    """`arming` is the number of its present wait, 0 when it does not wait: a ring for an earlier one is
    not for it."""

    def __init__(self, wakeups: Arming, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self.arming = 0
        self.rung = False
        self._wakeups = wakeups
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def arm(self) -> None:
        if self.arming and not self.rung:
            return  # it is waiting already, and nobody has to be told anew
        self.rung = False
        self._event.clear()
        self.arming = self._wakeups.arm(self)

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the contract's word
        # Not wait_for: on Python 3.11 it swallows a cancellation that meets a ring.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()
        return self.rung

    def disarm(self) -> None:
        if self.arming:
            self._wakeups.disarm(self)
            self.arming = 0

    def close(self) -> None:
        self.disarm()

    def wake(self) -> None:
        """From any thread."""
        self.rung = True
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        if self.rung:  # not of a wait before this one
            self._event.set()
