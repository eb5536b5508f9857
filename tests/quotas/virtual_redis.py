"""The Redis store in virtual time: its scripts run on a real server, over blocking sockets.

No virtual time passes during a call. The wake-ups of the scripts are real too: after every call the
channels are emptied, so that listeners wake before anything else happens."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any, Self
from urllib.parse import urlsplit

import hiredis

from tidemill.clock import Clock, Entropy
from tidemill.stores.redis import RedisStore
from tidemill.stores.redis.address import parse_url
from tidemill.stores.redis.clock import InjectedRedisClock
from tidemill.stores.redis.connection import ThreadConnectionFactory, run_without_loop
from tidemill.stores.redis.handle import RedisHandle
from tidemill.stores.redis.protocol import CommandArgument, pack_command
from tidemill.stores.redis.scripts import LuaScript
from tidemill.stores.redis.shard import Shard
from tidemill.stores.redis.wakeups import RedisWakeups


class WakeupChannels:
    """Subscribes to the channels of all handles. `close` also closes those of killed processes."""

    def __init__(self, url: str, prefix: str) -> None:
        self._known: dict[str, RedisWakeups] = {}
        self._open = ExitStack()
        place = urlsplit(url)
        address = (place.hostname or "", place.port or 0)
        self._socket = self._open.enter_context(socket.create_connection(address, timeout=10))
        self._reader = hiredis.Reader(encoding="utf-8")
        self._socket.sendall(pack_command(("PSUBSCRIBE", f"{{{prefix}}}:wakeups:*")))

    def add(self, shard: Shard, wakeups: RedisWakeups) -> None:
        self._open.callback(lambda: run_without_loop(shard.close()))
        self._known[wakeups.handle] = wakeups
        wakeups.use(shard)

    def hear(self) -> None:
        """Empties the channels. They are ordered: nothing more comes after the answer to a ping."""
        self._socket.sendall(pack_command(("PING",)))
        while (message := self._next())[0] != "pong":
            if message[0] == "pmessage":
                self._known[message[2].rpartition(":")[2]].heard(message[3].encode())

    def _next(self) -> list[Any]:
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return list(reply)

    def close(self) -> None:
        self._open.close()


class _Shard(Shard):
    bells: WakeupChannels

    async def run(self, script: LuaScript, *args: CommandArgument, repeatable: bool = False) -> Any:
        reply = await super().run(script, *args, repeatable=repeatable)
        self.bells.hear()
        return reply

    def tell(self, script: LuaScript, *args: CommandArgument, on_failure: object = None) -> None:
        run_without_loop(self.run(script, *args))


class _Handle(RedisHandle):
    bells: WakeupChannels

    async def open(self) -> None:
        assert isinstance(self.clock, InjectedRedisClock)
        shard = _Shard(self.address, ThreadConnectionFactory(), self.clock)
        shard.bells = self.bells
        await shard.open()
        self.bells.add(shard, self.wakeups)
        self._shard = shard

    async def close(self) -> None:
        self._shard = None


class VirtualRedisStore(RedisStore):
    def __init__(self, bells: WakeupChannels, url: str, prefix: str, clock: Clock, entropy: Entropy) -> None:
        self._bells, self._made_of = bells, (url, prefix, clock, entropy)
        handle = _Handle(parse_url(url, prefix), clock)
        handle.bells = bells
        self._use(handle, entropy)

    def new_handle(self) -> Self:
        return type(self)(self._bells, *self._made_of)
