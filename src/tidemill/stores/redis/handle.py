"""What a store holds of its servers: a shard for its event loop, wake-ups, and shards for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidemill.clock import Clock
from tidemill.errors import StoreUnavailable
from tidemill.stores.redis.address import Address
from tidemill.stores.redis.bell import Bell
from tidemill.stores.redis.clocks import GivenClock, ServerClock
from tidemill.stores.redis.lines import LoopLine
from tidemill.stores.redis.shard import Shard
from tidemill.stores.redis.threads import Threads
from tidemill.stores.redis.wakeups import Wakeups


class Handle:
    """Without a `clock` the server's is the truth. `skew` is for tests of a stepped one."""

    def __init__(
        self, address: Address, clock: Clock | None = None, skew: Callable[[], float] | None = None
    ) -> None:
        self.address = address
        self._given, self._skew = clock, skew
        self.clock = ServerClock(skew) if clock is None else GivenClock(clock)
        self.wakeups = Wakeups()
        self.threads = Threads(address, self.clock)
        self._shard: Shard | None = None
        self._bell: Bell | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def another(self) -> Handle:
        return Handle(self.address, self._given, self._skew)

    @property
    def shard(self) -> Shard:
        if self._shard is None:
            raise StoreUnavailable(f"{self.address}: the store is closed; open it again")
        return self._shard

    def warnings(self) -> tuple[str, ...]:
        """What is worth knowing of the way to the server, in whole sentences."""
        silent = "" if self._bell is None else self._bell.silent
        says = (
            f"workers cannot be woken ({silent}): they look for jobs now and then, so jobs start late; allow "
            "this user the channels of the prefix, and one more connection"
        )
        return (says,) if silent else ()

    async def open(self) -> None:
        """Everything that belongs to a loop is made here, so that a handle closed on one may be opened
        on another."""
        await self.close()
        shard = Shard(self.address, LoopLine(), self.clock, self._connected)
        await shard.open()
        bell = Bell(shard, self.wakeups)
        try:
            await bell.open()
        except BaseException:
            await shard.close()
            raise
        self.wakeups.use(shard)
        self.threads.open()
        self._loop = asyncio.get_running_loop()
        self._shard, self._bell = shard, bell

    async def close(self) -> None:
        bell, shard = self._bell, self._shard
        self._bell = self._shard = None
        self.threads.close()
        if bell is None or shard is None:
            return
        if self._loop is not asyncio.get_running_loop():
            # The loop it was opened on is over, or of the process this one was forked from.
            bell.abandon()
            shard.abandon()
        else:
            self.wakeups.disarm_all()
            await bell.close()
            await shard.close()
        self.wakeups.use(None)

    def _connected(self) -> None:
        if self._bell is not None:
            self._bell.follow()
