"""Waiting for work without asking for it: arm, look once more, then park."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidemill.contract.wakeups import Listener

ARMED_FOR = 30.0
"""After so many seconds without a ring it is armed anew: one may have been lost on its way, and the listener
is then no longer known to those who ring."""


class Bell:
    """Calls `on_ring` once after every `park`: when rung, or when its time is over."""

    def __init__(self, listener: Listener, on_ring: Callable[[], None]) -> None:
        self._listener = listener
        self._on_ring = on_ring
        self._parked = asyncio.Event()
        self._timeout = 0.0
        self._loop = asyncio.get_running_loop()
        self._armed_at = 0.0
        self._listening = False
        self._is_poll = False
        self._polled = False
        self.armed = False

    def arm(self) -> None:
        self._armed_at = self._loop.time()
        self._listener.arm()
        self.armed = self._listening = True

    def disarm(self) -> None:
        self.armed = False
        if self._listening:
            self._listener.disarm()
            self._listening = False

    def park(self, seconds: float, *, is_poll: bool) -> None:
        """`is_poll`: no job is known to become due when the time is over."""
        self._timeout, self._is_poll, self._polled = seconds, is_poll, False
        self._parked.set()

    def found_work(self) -> None:
        """Arms again before the next look if a poll found the work: the ring for it was lost, and the
        listener may no longer be known to other processes."""
        if self._polled:
            self._polled = self.armed = False

    async def run(self) -> None:
        try:
            while True:
                await self._parked.wait()
                self._parked.clear()
                rung = await self._listener.wait(self._timeout)
                # One that was rung is taken down later: there is work to fetch, and a ring that comes
                # meanwhile is answered by the look that follows the next arming. One that was not still
                # hears: a look that finds nothing may park it again as it is.
                self.armed = not rung and self._loop.time() - self._armed_at < ARMED_FOR
                self._polled = not rung and self._is_poll
                self._on_ring()
        finally:
            self.disarm()
            self._listener.close()
