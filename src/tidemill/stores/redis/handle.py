"""The connections, clock and wake-ups of one store object. The store object has one connection for its event
loop. A thread without an event loop borrows another connection for each store method."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidemill.clock import Clock
from tidemill.errors import StoreUnavailable
from tidemill.stores.redis.address import RedisAddress
from tidemill.stores.redis.clock import InjectedRedisClock, RedisServerClock
from tidemill.stores.redis.connection import LoopConnectionFactory, ThreadConnectionFactory, run_without_loop
from tidemill.stores.redis.shard import Shard
from tidemill.stores.redis.wakeups import PubSubConnection, RedisWakeups

MAX_IDLE_SHARDS = 8


class ThreadShards:
    """Keeps idle `Shard` objects, each with its own connection, for threads without an event loop."""

    def __init__(self, address: RedisAddress, clock: InjectedRedisClock | RedisServerClock) -> None:
        self._address, self._injected_clock = address, clock
        self._idle: list[Shard] = []  # without a lock: `append` and `pop` of a list are atomic
        self._closed = False

    def open(self) -> None:
        self._closed = False

    @contextmanager
    def shard(self) -> Iterator[Shard]:
        """Yields a `Shard` with a blocking connection. Its methods never suspend, so `run_without_loop` can
        run them. After an error the connection is closed."""
        try:
            shard = self._idle.pop()
        except IndexError:
            shard = Shard(self._address, ThreadConnectionFactory(), self._injected_clock)
        try:
            yield shard
        except BaseException:
            # A late reply to this call would be taken for the reply to the next call.
            run_without_loop(shard.close())
            raise
        if len(self._idle) < MAX_IDLE_SHARDS and not self._closed:
            self._idle.append(shard)
        else:
            run_without_loop(shard.close())

    def close(self) -> None:
        """Closes the connections that are idle. A connection in use is closed when its call ends."""
        self._closed = True
        while self._idle:
            run_without_loop(self._idle.pop().close())


class RedisHandle:
    """The connections, clock and wake-ups of one store object. `clock`: the clock of a test; None means the
    server's clock. `skew`: returns seconds to add to the server's clock, for tests."""

    def __init__(
        self, address: RedisAddress, clock: Clock | None = None, skew: Callable[[], float] | None = None
    ) -> None:
        self.address = address
        self._injected_clock, self._skew = clock, skew
        self.clock = RedisServerClock(skew) if clock is None else InjectedRedisClock(clock)
        self.wakeups = RedisWakeups()
        self.threads = ThreadShards(address, self.clock)
        self._shard: Shard | None = None
        self._pubsub: PubSubConnection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def new_handle(self) -> RedisHandle:
        return RedisHandle(self.address, self._injected_clock, self._skew)

    @property
    def shard(self) -> Shard:
        if self._shard is None:
            raise StoreUnavailable(f"{self.address}: the store is closed; open it again")
        return self._shard

    def warnings(self) -> tuple[str, ...]:
        """Returns sentences about problems of the connection; empty if all is well."""
        problem = "" if self._pubsub is None else self._pubsub.problem
        warning = (
            f"workers cannot be woken ({problem}): they poll for jobs, so jobs start late; "
            "allow this user the channels of the prefix, and one more connection"
        )
        return (warning,) if problem else ()

    async def open(self) -> None:
        """Connects the handle on the running event loop. A closed handle can be opened on another loop."""
        await self.close()
        shard = Shard(self.address, LoopConnectionFactory(), self.clock, self._connected)
        await shard.open()
        pubsub = PubSubConnection(shard, self.wakeups)
        try:
            await pubsub.open()
        except BaseException:
            await shard.close()
            raise
        self.wakeups.use(shard)
        self.threads.open()
        self._loop = asyncio.get_running_loop()
        self._shard, self._pubsub = shard, pubsub

    async def close(self) -> None:
        pubsub, shard = self._pubsub, self._shard
        self._pubsub = self._shard = None
        self.threads.close()
        if pubsub is None or shard is None:
            return
        if self._loop is not asyncio.get_running_loop():
            # Its loop is closed, or belongs to the process that this one was forked from.
            pubsub.abandon()
            shard.abandon()
        else:
            self.wakeups.disarm_all()
            await pubsub.close()
            await shard.close()
        self.wakeups.use(None)

    def _connected(self) -> None:
        if self._pubsub is not None:
            self._pubsub.follow()
