"""Everything that is atomic together, and the one way to it: run a script there.

A verb goes out on the one connection of its loop, behind those already under way. Scripts are loaded
again where the server forgot them, and a moved primary is followed, until the verb's deadline. A call
whose reply was lost is sent again only where the contract says that this is harmless (J1).
"""

from __future__ import annotations

import contextlib
from asyncio import Future
from collections.abc import Callable
from typing import Any

from tidemill.errors import ConfigurationError, StoreUnavailable
from tidemill.stores.redis import scripts
from tidemill.stores.redis.address import Address
from tidemill.stores.redis.clocks import GivenClock, ServerClock
from tidemill.stores.redis.connector import Connector
from tidemill.stores.redis.faults import AGAIN, ELSEWHERE, Lost, Said
from tidemill.stores.redis.lines import Connection, Line
from tidemill.stores.redis.scripts import Script
from tidemill.stores.redis.wire import Argument, pack

READ_CLOCK = scripts.load("read_clock")


class Shard:
    def __init__(
        self,
        address: Address,
        line: Line,
        clock: GivenClock | ServerClock,
        on_connected: Callable[[], None] | None = None,
    ) -> None:
        self.address, self.root = address, address.root
        self.connector = Connector(address, line, clock, on_connected)
        self._line, self._clock = line, clock
        self.time = line.time

    def key(self, name: str) -> str:
        return self.root + name

    async def open(self) -> None:
        """Raises what is wrong, in a sentence; mistakes in the settings as ConfigurationError."""
        await self.connector.connected(self.deadline())

    async def close(self) -> None:
        await self.connector.close()

    def abandon(self) -> None:
        """Its loop is closed, or another process's."""
        if self.connector.wire is not None:
            self.connector.wire.abandon()

    def deadline(self) -> float:
        """Of a call that begins now."""
        return self.time() + self.address.timeout

    async def pause(self, seconds: float) -> None:
        await self._line.pause(seconds)

    async def run(self, script: Script, *args: Argument, repeatable: bool = False) -> Any:
        """One atomic step. `repeatable`: sent again after a lost reply it does the same once."""
        until = self.deadline()
        if script.reckons and self._clock.is_old:
            await self._look_at_the_clock(until)
        return await self._call(lambda: self._packed(script, args), until, repeatable, script)

    async def ask(self, *command: Argument, repeatable: bool = True) -> Any:
        """One plain command."""
        return await self._call(lambda: pack(command), self.deadline(), repeatable, None)

    async def read_clock(self) -> tuple[float, float]:
        """(wall, boot)"""
        return await self._look_at_the_clock(self.deadline())

    async def load(self, *wanted: Script) -> None:
        """Before they are told: a hint that the server does not know yet is a lost one."""
        for script in wanted:
            await self.ask(b"SCRIPT", b"LOAD", script.source)

    def tell(self, script: Script, *args: Argument, unheard: Callable[[], None] | None = None) -> None:
        """A hint: nobody waits for what becomes of it. `unheard` is called when it came to nothing."""
        wire = self.connector.wire
        if wire is None or wire.lost is not None:
            if unheard is not None:
                unheard()
            return
        until = self.deadline()

        def heard(answer: Future[Any]) -> None:
            reply = answer.exception() or answer.result()
            if not isinstance(reply, (Lost, Said)):
                return
            if isinstance(reply, Said) and reply.word == "NOSCRIPT":
                wire.ask(pack((b"SCRIPT", b"LOAD", script.source)), until)
                wire.ask(self._packed(script, args), until)
            if unheard is not None:
                unheard()

        wire.ask(self._packed(script, args), until).add_done_callback(heard)

    def _packed(self, script: Script, args: tuple[Argument, ...]) -> bytes:
        words = self._clock.words() if script.reckons else self._clock.first_words()
        return pack((b"EVALSHA", script.sha, 1, self.root, words, *args))

    async def _look_at_the_clock(self, until: float) -> tuple[float, float]:
        wall, boot = await self._call(lambda: self._packed(READ_CLOCK, ()), until, True, READ_CLOCK)
        self._clock.saw(float(boot))
        return float(wall), float(boot)

    async def _call(
        self, packed: Callable[[], bytes], until: float, repeatable: bool, script: Script | None
    ) -> Any:
        losses = 0
        while True:
            wire = self.connector.wire
            if wire is None or wire.lost is not None:
                wire = await self._connected(until)
            try:
                reply = await wire.ask(packed(), until)
            except Lost as lost:
                if not repeatable:
                    raise self.connector.error(
                        Lost(f"{lost}; what was asked for may or may not be done")
                    ) from lost
                losses += 1
                if losses > 1 or self.time() >= until:
                    await self.connector.back_off(until, lost)
            else:
                if type(reply) is not Said:
                    return reply
                await self._heed(reply, wire, until, script)

    async def _connected(self, until: float) -> Connection:
        try:
            return await self.connector.connected(until)
        except ConfigurationError as error:
            raise StoreUnavailable(str(error)) from error

    async def _heed(self, said: Said, wire: Connection, until: float, script: Script | None) -> None:
        """Returns when the call is to be made again: the server refused it before it did anything."""
        if said.word == "NOSCRIPT" and script is not None:
            with contextlib.suppress(Lost):
                loaded = await wire.ask(pack((b"SCRIPT", b"LOAD", script.source)), until)
                if type(loaded) is Said:
                    raise self.connector.error(loaded)
        elif said.word == "RECKON":
            self._clock.saw(None)
        elif said.word in AGAIN:
            if said.word in ELSEWHERE:
                wire.end("the primary is another server by now")
            self.connector.note_where(said)
            await self.connector.back_off(until, said)
        else:
            raise self.connector.error(said)
