"""Wake-ups between machines: the listeners of this process, and the pub/sub connection that receives their
wake-ups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count

from tidemill.clock import SystemEntropy
from tidemill.stores.redis import scripts
from tidemill.stores.redis.address import RedisNode
from tidemill.stores.redis.connection import LoopConnectionFactory
from tidemill.stores.redis.errors import ConnectionLostError, RedisReplyError
from tidemill.stores.redis.handshake import log_in, read_reply
from tidemill.stores.redis.protocol import RedisProtocol, pack_command
from tidemill.stores.redis.shard import Shard

ARM, DISARM, WAKE = (scripts.load_script(name) for name in ("arm", "disarm", "wake"))
_JOB_PREFIX = "job:"


class RedisWakeups:
    """The listeners of one event loop. Registers them on the server and wakes them."""

    def __init__(self) -> None:
        self.handle = SystemEntropy().new_id()
        self._numbers = count(1)
        self._armed: dict[int, RedisListener] = {}
        self._shard: Shard | None = None

    def use(self, shard: Shard | None) -> None:
        self._shard = shard

    def listen(self, topics: Iterable[str]) -> RedisListener:
        return RedisListener(self, tuple(topics), next(self._numbers))

    def wake(self, topics: Iterable[str]) -> None:
        awaited = tuple(topics)
        if awaited and self._shard is not None:
            self._shard.tell(WAKE, *awaited)

    def heard(self, message: bytes) -> None:
        listener = self._armed.get(int(message))
        if listener is not None:
            listener.wake()

    def wake_all(self) -> None:
        """Wakes all listeners. Called after a reconnect, because wake-ups may have been lost."""
        for listener in list(self._armed.values()):
            listener.wake()

    def arm(self, listener: RedisListener) -> None:
        self._armed[listener.number] = listener
        if self._shard is not None:
            self._shard.tell(ARM, self.handle, listener.number, *listener.topics, on_failure=listener.wake)

    def disarm(self, listener: RedisListener) -> None:
        if self._armed.pop(listener.number, None) is None or self._shard is None:
            return
        waits = any(topic.startswith(_JOB_PREFIX) for other in self._armed.values() for topic in other.topics)
        self._shard.tell(DISARM, self.handle, listener.number, 0 if waits else 1, *listener.topics)

    def disarm_all(self) -> None:
        for listener in list(self._armed.values()):
            self.disarm(listener)


class RedisListener:
    """Waits for wake-ups of some topics (W1, W2). Call `arm`, then look for work, then call `wait`. `wait`
    returns True if a wake-up came after `arm`, and False after the timeout."""

    def __init__(self, wakeups: RedisWakeups, topics: tuple[str, ...], number: int) -> None:
        self._wakeups = wakeups
        self.topics, self.number = topics, number
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def arm(self) -> None:
        self._rung = False
        self._wakeups.arm(self)

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - as the contract has it
        if self._rung:
            await asyncio.sleep(0)  # a caller in a tight loop lets other tasks run
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


PING_SECONDS = 15.0
"""A PING this often notices a dead connection; after reconnecting, all listeners wake up."""
PUBSUB_CONNECT_TIMEOUT_SECONDS = 2.0
PUBSUB_FIRST_PAUSE_SECONDS, PUBSUB_MAX_PAUSE_SECONDS = 0.1, 5.0


class PubSubConnection:
    """The connection that receives wake-ups. It must lead to the shard's server, because a script reaches
    only subscribers on its own server."""

    def __init__(self, shard: Shard, wakeups: RedisWakeups) -> None:
        self._shard, self._wakeups = shard, wakeups
        self._factory = LoopConnectionFactory(wakeups.heard)
        self._connection: RedisProtocol | None = None
        self._node: RedisNode | None = None
        self._jitter = SystemEntropy()
        self._task: asyncio.Task[None] | None = None
        self.problem = ""
        """Why no wake-up can be received at the moment; empty if all is well."""

    async def open(self) -> None:
        """Connects and subscribes, and keeps reconnecting in a background task. If the first attempt fails,
        wake-ups come late."""
        await self._shard.load(ARM, DISARM, WAKE)
        await self._try()
        self._task = asyncio.create_task(self._stay_connected(), name="tidemill wakeups")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    def abandon(self) -> None:
        """Closes only the socket, because its event loop is closed or belongs to another process."""
        if self._connection is not None:
            self._connection.abandon()

    def follow(self) -> None:
        """Closes this connection if the shard has reconnected to another server; the background task then
        connects to that server. Wakes all listeners."""
        if self._connection is not None and self._node != self._shard.connector.node:
            self._connection.end("the primary is another server by now")
        self._wakeups.wake_all()

    async def _try(self) -> bool:
        try:
            await self._connect()
        except (ConnectionLostError, RedisReplyError) as error:
            self.problem = str(error)
            return False
        self.problem = ""
        return True

    async def _connect(self) -> None:
        if self._shard.connector.node is None:
            raise ConnectionLostError("the shard is not connected")
        until = self._factory.time() + PUBSUB_CONNECT_TIMEOUT_SECONDS
        node = self._shard.connector.node
        connection = await self._factory.connect(node, self._shard.address.tls, until)
        try:
            await log_in(connection, self._shard.address.login, until)
            await read_reply(
                connection, until, b"SUBSCRIBE", self._shard.key(f"wakeups:{self._wakeups.handle}")
            )
        except BaseException:
            connection.end("it cannot be used")
            raise
        self._connection, self._node = connection, node

    async def _stay_connected(self) -> None:
        pause = PUBSUB_FIRST_PAUSE_SECONDS
        while True:
            if self._connection is not None and self._connection.lost is None:
                pause = PUBSUB_FIRST_PAUSE_SECONDS
                await self._until_lost(self._connection)
            await asyncio.sleep(pause * (0.5 + self._jitter.chance()))
            pause = min(pause * 2, PUBSUB_MAX_PAUSE_SECONDS)
            if await self._try():
                self._wakeups.wake_all()

    async def _until_lost(self, connection: RedisProtocol) -> None:
        while not connection.closed.done():
            await asyncio.wait((connection.closed,), timeout=PING_SECONDS)
            if not connection.closed.done():
                connection.ask(
                    pack_command((b"PING",)), self._factory.time() + PUBSUB_CONNECT_TIMEOUT_SECONDS
                )
