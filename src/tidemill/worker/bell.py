"""Waiting for work without asking for it: arm, look once more, then park."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidemill.contract.wakeups import Listener


class Bell:
    """Calls `on_ring` once after every `park`: when rung, or when its time is over."""

    def __init__(self, listener: Listener, on_ring: Callable[[], None]) -> None:
        self._listener = listener
        self._on_ring = on_ring
        self._parked = asyncio.Event()
        self._timeout = 0.0
        self._listening = False
        self.armed = False

    def arm(self) -> None:
        self._listener.arm()
        self.armed = self._listening = True

    def disarm(self) -> None:
        self.armed = False
        if self._listening:
            self._listener.disarm()
            self._listening = False

    def park(self, seconds: float) -> None:
        self._timeout = seconds
        self._parked.set()

    async def run(self) -> None:
        try:
            while True:
                await self._parked.wait()
                self._parked.clear()
                await self._listener.wait(self._timeout)
                # Taken down later: there is work to fetch, and a ring that comes meanwhile is
                # answered by the look that follows the next arming.
                self.armed = False
                self._on_ring()
        finally:
            self.disarm()
            self._listener.close()
