"""Wake-ups inside one process, across threads and event loops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from threading import Lock

from tidemill.contract.coordination import queue_topic

_QUEUES = queue_topic("")


class MemoryListenerHub:
    """The armed listeners of a memory store, grouped by topic. A topic names what a listener waits for, such
    as new jobs of a queue."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._armed: dict[str, dict[MemoryListener, None]] = {}

    def arm(self, listener: MemoryListener) -> None:
        with self._lock:
            listener.is_woken = False
            for topic in listener.topics:
                self._armed.setdefault(topic, {})[listener] = None

    def disarm(self, listener: MemoryListener) -> None:
        with self._lock:
            self._remove(listener)

    def wake(self, topics: Iterable[str]) -> None:
        """Wakes the armed listeners of `topics`. The topic of a queue wakes only the listener that armed
        first. A woken listener must arm again."""
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
    """Waits for wake-ups of its topics (W1, W2). Call `arm`, then look for work, then call `wait`. `wait`
    returns True if a wake-up came after `arm`, and False after the timeout."""

    def __init__(self, hub: MemoryListenerHub, topics: Iterable[str]) -> None:
        self._hub = hub
        self.topics = tuple(topics)
        self.is_woken = False
        self._waiter: asyncio.Future[None] | None = None

    def arm(self) -> None:
        self._hub.arm(self)

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - as the contract has it
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            if not self.is_woken:  # checked after the waiter exists: a wake-up from another thread sees it
                await asyncio.wait((self._waiter,), timeout=timeout)
        finally:
            self._waiter = None
        return self.is_woken

    def disarm(self) -> None:
        self._hub.disarm(self)

    def close(self) -> None:
        self._hub.disarm(self)

    def wake(self) -> None:
        """Wakes the listener, from any thread."""
        self.is_woken = True
        waiter = self._waiter
        if waiter is None:
            return
        loop = waiter.get_loop()
        if loop is _running_loop():
            _finish(waiter)
            return
        with contextlib.suppress(RuntimeError):  # its loop has been closed: no coroutine waits any more
            loop.call_soon_threadsafe(_finish, waiter)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
