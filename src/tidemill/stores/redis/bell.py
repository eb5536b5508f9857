"""The connection a handle is rung over, kept up while the handle is open."""

from __future__ import annotations

import asyncio

from tidemill.clock import SystemEntropy
from tidemill.stores.redis.address import Node
from tidemill.stores.redis.faults import Lost, Said
from tidemill.stores.redis.greeting import expect, log_in
from tidemill.stores.redis.lines import LoopLine
from tidemill.stores.redis.shard import Shard
from tidemill.stores.redis.wakeups import ARM, DISARM, RING, Wakeups
from tidemill.stores.redis.wire import Wire, pack

PING_EVERY = 15.0
"""A connection that died without a word is noticed after so many seconds, and rung over again."""
PATIENCE = 2.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


class Bell:
    """Goes where the shard went: only there a ringing script can tell who still listens."""

    def __init__(self, shard: Shard, wakeups: Wakeups) -> None:
        self._shard, self._wakeups = shard, wakeups
        self._line = LoopLine(wakeups.heard)
        self._wire: Wire | None = None
        self._node: Node | None = None
        self._jitter = SystemEntropy()
        self._task: asyncio.Task[None] | None = None
        self.silent = ""
        """Why it cannot be rung, while it cannot."""

    async def open(self) -> None:
        """Returns when it can be rung. Where that fails, wake-ups are late and nothing else."""
        await self._shard.load(ARM, DISARM, RING)
        await self._try()
        self._task = asyncio.create_task(self._stay_connected(), name="tidemill bell")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._wire is not None:
            await self._wire.close()
            self._wire = None

    def abandon(self) -> None:
        """Its loop is closed, or another process's."""
        if self._wire is not None:
            self._wire.abandon()

    def follow(self) -> None:
        """The shard has a new connection: perhaps to another server."""
        if self._wire is not None and self._node != self._shard.connector.node:
            self._wire.end("the primary is another server by now")
        self._wakeups.wake_all()

    async def _try(self) -> bool:
        try:
            await self._connect()
        except (Lost, Said) as why:
            self.silent = str(why)
            return False
        self.silent = ""
        return True

    async def _connect(self) -> None:
        if self._shard.connector.node is None:
            raise Lost("the shard is not connected")
        until = self._line.time() + PATIENCE
        node = self._shard.connector.node
        wire = await self._line.connect(node, self._shard.address.tls, until)
        try:
            await log_in(wire, self._shard.address.login, until)
            await expect(wire, until, b"SUBSCRIBE", self._shard.key(f"bell:{self._wakeups.handle}"))
        except BaseException:
            wire.end("it cannot be used")
            raise
        self._wire, self._node = wire, node

    async def _stay_connected(self) -> None:
        pause = FIRST_PAUSE
        while True:
            if self._wire is not None and self._wire.lost is None:
                pause = FIRST_PAUSE
                await self._until_lost(self._wire)
            await asyncio.sleep(pause * (0.5 + self._jitter.chance()))
            pause = min(pause * 2, LONGEST_PAUSE)
            if await self._try():
                self._wakeups.wake_all()

    async def _until_lost(self, wire: Wire) -> None:
        while not wire.over.done():
            await asyncio.wait((wire.over,), timeout=PING_EVERY)
            if not wire.over.done():
                wire.ask(pack((b"PING",)), self._line.time() + PATIENCE)
