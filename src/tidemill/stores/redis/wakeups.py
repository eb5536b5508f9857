"""Wake-ups across machines (`lua/parts/bell.lua`).

A listener that waits is parked in the shard, in the order of calls: whatever the same handle asks for
behind it finds it there. The script that makes a job startable rings one of the parked, over a channel
of its handle. That channel has a connection to itself, because a server closes subscribed ones whose
replies are large. After a loss of either connection everybody parked is woken as a precaution.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count

from tidemill.clock import SystemEntropy
from tidemill.stores.redis import scripts
from tidemill.stores.redis.shard import Shard

ARM, DISARM, RING = (scripts.load(name) for name in ("arm", "disarm", "ring"))
_JOBS = "job:"


class Wakeups:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self.handle = SystemEntropy().new_id()
        self._numbers = count(1)
        self._armed: dict[int, RedisListener] = {}
        self._shard: Shard | None = None

    def use(self, shard: Shard | None) -> None:
        self._shard = shard

    def listen(self, topics: Iterable[str]) -> RedisListener:
        return RedisListener(self, tuple(topics), next(self._numbers))

    def ring(self, topics: Iterable[str]) -> None:
        wanted = tuple(topics)
        if wanted and self._shard is not None:
            self._shard.tell(RING, *wanted)

    def heard(self, message: bytes) -> None:
        listener = self._armed.get(int(message))
        if listener is not None:
            listener.wake()

    def wake_all(self) -> None:
        """What was rung meanwhile may have been lost."""
        for listener in list(self._armed.values()):
            listener.wake()

    def arm(self, listener: RedisListener) -> None:
        self._armed[listener.number] = listener
        if self._shard is not None:
            self._shard.tell(ARM, self.handle, listener.number, *listener.topics, unheard=listener.wake)

    def disarm(self, listener: RedisListener) -> None:
        if self._armed.pop(listener.number, None) is None or self._shard is None:
            return
        waits = any(topic.startswith(_JOBS) for one in self._armed.values() for topic in one.topics)
        self._shard.tell(DISARM, self.handle, listener.number, 0 if waits else 1, *listener.topics)

    def disarm_all(self) -> None:
        for listener in list(self._armed.values()):
            self.disarm(listener)


class RedisListener:
    """W1, W2. A ring is kept until the next `arm`."""

    def __init__(self, wakeups: Wakeups, topics: tuple[str, ...], number: int) -> None:
        self._wakeups = wakeups
        self.topics, self.number = topics, number
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def arm(self) -> None:
        self._rung = False
        self._wakeups.arm(self)

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - as the contract has it
        if self._rung:
            await asyncio.sleep(0)  # whoever asks again and again lets others run
        else:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            over = loop.call_later(timeout, _finish, self._waiter)
            try:
                await self._waiter
            finally:
                over.cancel()
                self._waiter = None
        return self._rung

    def disarm(self) -> None:
        self._wakeups.disarm(self)

    def close(self) -> None:
        self._wakeups.disarm(self)

    def wake(self) -> None:
        self._rung = True
        if self._waiter is not None:
            _finish(self._waiter)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
