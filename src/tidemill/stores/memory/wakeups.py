"""Wake-ups inside one process, across threads and event loops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from threading import Lock

from tidemill.contract.wakeups import queue_topic

_QUEUES = queue_topic("")


class Hub:
    """Who listens for what. Only armed listeners are in it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._armed: dict[str, dict[MemoryListener, None]] = {}

    def arm(self, listener: MemoryListener) -> None:
        with self._lock:
            listener.rung = False
            for topic in listener.topics:
                self._armed.setdefault(topic, {})[listener] = None

    def disarm(self, listener: MemoryListener) -> None:
        with self._lock:
            self._remove(listener)

    def ring(self, topics: Iterable[str]) -> None:
        """A job is work for one, so a queue's topic wakes the longest armed listener not yet rung.
        An end is news for everybody, so any other topic wakes all."""
        with self._lock:
            for topic in topics:
                listening = list(self._armed.get(topic, ()))
                for listener in listening[:1] if topic.startswith(_QUEUES) else listening:
                    self._remove(listener)
                    listener.wake()

    def _remove(self, listener: MemoryListener) -> None:
        for topic in listener.topics:
            armed = self._armed.get(topic)
            if armed is not None:
                armed.pop(listener, None)
                if not armed:
                    del self._armed[topic]


class MemoryListener:
    """W1, W2. A ring is kept until the next `arm`."""

    def __init__(self, hub: Hub, topics: Iterable[str]) -> None:
        self._hub = hub
        self.topics = tuple(topics)
        self.rung = False
        self._waiter: asyncio.Future[None] | None = None

    def arm(self) -> None:
        self._hub.arm(self)

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - as the contract has it
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            if not self.rung:  # asked after the waiter stands: a ring from another thread sees it
                await asyncio.wait((self._waiter,), timeout=timeout)
        finally:
            self._waiter = None
        return self.rung

    def disarm(self) -> None:
        self._hub.disarm(self)

    def close(self) -> None:
        self._hub.disarm(self)

    def wake(self) -> None:
        """Called by the hub, on any thread."""
        self.rung = True
        waiter = self._waiter
        if waiter is None:
            return
        loop = waiter.get_loop()
        if loop is _running_loop():
            _finish(waiter)
            return
        with contextlib.suppress(RuntimeError):  # its loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(_finish, waiter)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
