"""Everything that is atomic together, and the one way to it: run a script there.

A verb goes out on the one connection of its loop, behind those already under way. What happens to
connections happens here: made anew with backoff until the verb's deadline, scripts loaded again where
the server forgot them, a moved primary followed. A call whose reply was lost is sent again only where
the contract says that this is harmless (J1).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from typing import Any

from tidemill.clock import SystemEntropy
from tidemill.errors import ConfigurationError, StoreReadOnly, StoreUnavailable
from tidemill.stores.redis import scripts
from tidemill.stores.redis.address import Address, Node
from tidemill.stores.redis.clocks import GivenClock, ServerClock
from tidemill.stores.redis.faults import AGAIN, ELSEWHERE, Lost, Said, translate
from tidemill.stores.redis.greeting import greet
from tidemill.stores.redis.lines import Connection, Line
from tidemill.stores.redis.policy import Server
from tidemill.stores.redis.scripts import Script
from tidemill.stores.redis.tls import context_of
from tidemill.stores.redis.topology import Topology
from tidemill.stores.redis.wire import Argument, pack

SILENCE = 2.0
"""A server that says nothing for so long is asked again, on a new connection."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5

READ_CLOCK = scripts.load("read_clock")


class Shard:
    """`on_connected` is told of every new connection, after it can be used."""

    def __init__(
        self,
        address: Address,
        line: Line,
        clock: GivenClock | ServerClock,
        on_connected: Callable[[], None] | None = None,
    ) -> None:
        self.address, self.root = address, address.root
        self.server: Server | None = None
        self.node: Node | None = None
        self._line, self._clock = line, clock
        self._jitter = SystemEntropy()  # never a test's: its seeds are for what the store decides
        self._on_connected = on_connected
        self._wire: Connection | None = None
        self._pause = FIRST_PAUSE
        self.tls = None if address.tls is None else context_of(address.tls)
        self._topology = Topology(address, line, self.tls)

    def key(self, name: str) -> str:
        return self.root + name

    async def open(self) -> None:
        """Raises what is wrong, in a sentence; mistakes in the settings as ConfigurationError."""
        await self._connected(self._line.time() + self.address.timeout)

    async def close(self) -> None:
        """Lets what is under way end: it was accepted, or will be said not to be."""
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.finish()
            await wire.close()

    def abandon(self) -> None:
        """Its loop is closed, or another process's."""
        if self._wire is not None:
            self._wire.abandon()

    async def pause(self, seconds: float) -> None:
        await self._line.pause(seconds)

    async def run(self, script: Script, *args: Argument, repeatable: bool = False) -> Any:
        """One atomic step. `repeatable`: sent again after a lost reply it does the same once."""
        until = self._line.time() + self.address.timeout
        if self._clock.is_old:
            await self.read_clock()
        return await self._call(lambda: self._packed(script, args), until, repeatable, script)

    async def ask(self, *command: Argument, repeatable: bool = True) -> Any:
        """One plain command."""
        until = self._line.time() + self.address.timeout
        return await self._call(lambda: pack(command), until, repeatable, None)

    async def load(self, *wanted: Script) -> None:
        """Before they are told: a hint that the server does not know yet is a lost one."""
        for script in wanted:
            await self.ask(b"SCRIPT", b"LOAD", script.source)

    def tell(self, script: Script, *args: Argument, unheard: Callable[[], None] | None = None) -> None:
        """A hint: nobody waits for what becomes of it. `unheard` is called when it came to nothing."""
        wire = self._wire
        if wire is None or wire.lost is not None:
            if unheard is not None:
                unheard()
            return
        until = self._line.time() + SILENCE

        def heard(answer: Future[Any]) -> None:
            if answer.exception() is None and type(answer.result()) is not Said:
                return
            if answer.exception() is None and answer.result().word == "NOSCRIPT":
                wire.ask(pack((b"SCRIPT", b"LOAD", script.source)), until)
                wire.ask(self._packed(script, args), until)
            if unheard is not None:
                unheard()

        wire.ask(self._packed(script, args), until).add_done_callback(heard)

    async def read_clock(self) -> tuple[float, float]:
        """(wall, boot)"""
        until = self._line.time() + self.address.timeout
        wall, boot = await self._call(lambda: self._packed(READ_CLOCK, ()), until, True, READ_CLOCK)
        self._clock.saw(float(boot))
        return float(wall), float(boot)

    def _packed(self, script: Script, args: tuple[Argument, ...]) -> bytes:
        return pack((b"EVALSHA", script.sha, 1, self.root, self._clock.words(), *args))

    async def _call(
        self, packed: Callable[[], bytes], until: float, repeatable: bool, script: Script | None
    ) -> Any:
        losses = 0
        while True:
            wire = self._wire
            if wire is None or wire.lost is not None:
                wire = await self._connected(until)
            try:
                reply = await wire.ask(packed(), min(until, self._line.time() + SILENCE))
            except Lost as lost:
                if not repeatable:
                    raise self._unavailable(f"{lost}; what was asked for may or may not be done") from lost
                losses += 1
                if losses > 1 or self._line.time() >= until:
                    await self._back_off(until, lost)
            else:
                if type(reply) is not Said:
                    return reply
                await self._heed(reply, wire, until, script)

    async def _heed(self, said: Said, wire: Connection, until: float, script: Script | None) -> None:
        """Returns when the call is to be made again: the server refused it before it did anything."""
        if said.word == "NOSCRIPT" and script is not None:
            loaded = await wire.ask(pack((b"SCRIPT", b"LOAD", script.source)), until)
            if type(loaded) is Said:
                raise self._error(loaded)
        elif said.word == "RECKON":
            self._clock.saw(None)
        elif said.word in AGAIN:
            if said.word in ELSEWHERE:
                wire.end("the primary is another server by now")
            self._note_where(said)
            await self._back_off(until, said)
        else:
            raise self._error(said)

    def _note_where(self, said: Said) -> None:
        if said.word == "MOVED" and self.node is not None:
            self._topology.moved(said, self.node)

    async def _back_off(self, until: float, why: Lost | Said | StoreReadOnly) -> None:
        pause = self._pause * (0.5 + self._jitter.chance())
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        if self._line.time() + pause >= until:
            raise self._error(why) from why
        await self._line.pause(pause)

    async def _connected(self, until: float) -> Connection:
        """The one connection; whoever comes while it is made waits for it."""
        async with self._line.alone():
            while self._wire is None or self._wire.lost is not None:
                try:
                    self._wire = await self._connect(min(until, self._line.time() + SILENCE))
                except Lost as lost:
                    await self._back_off(until, lost)
                except Said as said:
                    if said.word not in AGAIN:
                        raise translate(said, str(self.address)) from said
                    self._note_where(said)
                    await self._back_off(until, said)
                except StoreReadOnly as error:
                    if self.server is None and not self.address.found:
                        raise  # whoever just starts has the wrong URL; else somebody becomes the primary
                    await self._back_off(until, error)
            self._pause = FIRST_PAUSE
            return self._wire

    async def _connect(self, until: float) -> Connection:
        self.node = await self._topology.locate(until)
        wire = await self._line.connect(self.node, self.tls, until)
        try:
            self.server = await greet(wire, self.address, self._clock, until)
        except BaseException:
            await wire.close()
            raise
        if self._on_connected is not None:
            self._on_connected()
        return wire

    def _error(self, why: Lost | Said | StoreReadOnly) -> Exception:
        """A verb's caller goes on trying: what is wrong with the settings may be put right meanwhile."""
        if isinstance(why, Lost):
            return self._unavailable(str(why))
        error = translate(why, str(self.address)) if isinstance(why, Said) else why
        return StoreUnavailable(str(error)) if isinstance(error, ConfigurationError) else error

    def _unavailable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(f"{self.address}: the server cannot be reached: {why}")
