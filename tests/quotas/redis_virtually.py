"""The Redis store in virtual time: its scripts on a real server, over sockets that block.

While one answers no virtual time passes. What the scripts ring is real too: after every call the channels
are emptied, so that whoever was rung is awake before anything else happens.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any, Self
from urllib.parse import urlsplit

import hiredis

from tidemill.clock import Clock, Entropy
from tidemill.stores.redis import RedisStore
from tidemill.stores.redis.address import parse
from tidemill.stores.redis.clocks import GivenClock
from tidemill.stores.redis.handle import Handle
from tidemill.stores.redis.lines import ThreadLine, finished
from tidemill.stores.redis.scripts import Script
from tidemill.stores.redis.shard import Shard
from tidemill.stores.redis.wakeups import Wakeups
from tidemill.stores.redis.wire import Argument, pack


class Bells:
    """Hears every handle's channel. `close` ends what killed processes left open too."""

    def __init__(self, url: str, prefix: str) -> None:
        self._known: dict[str, Wakeups] = {}
        self._open = ExitStack()
        place = urlsplit(url)
        address = (place.hostname or "", place.port or 0)
        self._socket = self._open.enter_context(socket.create_connection(address, timeout=10))
        self._reader = hiredis.Reader(encoding="utf-8")
        self._socket.sendall(pack(("PSUBSCRIBE", f"{{{prefix}}}:bell:*")))

    def add(self, shard: Shard, wakeups: Wakeups) -> None:
        self._open.callback(lambda: finished(shard.close()))
        self._known[wakeups.handle] = wakeups
        wakeups.use(shard)

    def hear(self) -> None:
        """Channels are emptied in order: behind the answer to a ping there is nothing more."""
        self._socket.sendall(pack(("PING",)))
        while (said := self._next())[0] != "pong":
            if said[0] == "pmessage":
                self._known[said[2].rpartition(":")[2]].heard(said[3].encode())

    def _next(self) -> list[Any]:
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return list(reply)

    def close(self) -> None:
        self._open.close()


class _Shard(Shard):
    bells: Bells

    async def run(self, script: Script, *args: Argument, repeatable: bool = False) -> Any:
        reply = await super().run(script, *args, repeatable=repeatable)
        self.bells.hear()
        return reply

    def tell(self, script: Script, *args: Argument, unheard: object = None) -> None:
        finished(self.run(script, *args))


class _Handle(Handle):
    bells: Bells

    async def open(self) -> None:
        assert isinstance(self.clock, GivenClock)
        shard = _Shard(self.address, ThreadLine(), self.clock)
        shard.bells = self.bells
        await shard.open()
        self.bells.add(shard, self.wakeups)
        self._shard = shard

    async def close(self) -> None:
        self._shard = None


class VirtualRedisStore(RedisStore):
    def __init__(self, bells: Bells, url: str, prefix: str, clock: Clock, entropy: Entropy) -> None:
        self._bells, self._made_of = bells, (url, prefix, clock, entropy)
        handle = _Handle(parse(url, prefix), clock)
        handle.bells = bells
        self._use(handle, entropy)

    def another(self) -> Self:
        return type(self)(self._bells, *self._made_of)
