"""Keeping the one connection of a shard: made anew with growing pauses, wherever the primary is by then."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.clock import SystemEntropy
from tidemill.errors import ConfigurationError, StoreReadOnly, StoreUnavailable
from tidemill.stores.redis.address import Address, Node
from tidemill.stores.redis.clocks import GivenClock, ServerClock
from tidemill.stores.redis.faults import AGAIN, Lost, Said, translate
from tidemill.stores.redis.greeting import greet
from tidemill.stores.redis.lines import Connection, Line
from tidemill.stores.redis.policy import Server
from tidemill.stores.redis.topology import Topology

PATIENCE = 2.0
"""A server that is not connected to within so many seconds is tried again."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5

SHORTEST_TRY = 0.1
"""With less time left another try could only end as one that took too long, which says nothing."""

Reason = Lost | Said | StoreReadOnly


class Connector:
    """`on_connected` is told of every new connection, after it can be used."""

    def __init__(
        self,
        address: Address,
        line: Line,
        clock: GivenClock | ServerClock,
        on_connected: Callable[[], None] | None,
    ) -> None:
        self.wire: Connection | None = None
        self.server: Server | None = None
        self.node: Node | None = None
        self._address, self._line, self._clock = address, line, clock
        self._on_connected = on_connected
        self._topology = Topology(address, line)
        self._jitter = SystemEntropy()  # never a test's: its seeds are for what the store decides
        self._pause = FIRST_PAUSE
        self._closed = False

    async def connected(self, until: float) -> Connection:
        """Whoever comes while it is made waits for it. Mistakes in the settings are ConfigurationErrors.
        What a try says that the deadline cut short is not worth what one before it said."""
        told: Reason | None = None
        async with self._line.alone():
            while self.wire is None or self.wire.lost is not None:
                if self._closed:
                    raise StoreUnavailable(f"{self._address}: the store is closed; open it again")
                is_hasty = self._line.time() + PATIENCE > until
                try:
                    self.wire = await self._connect(min(until, self._line.time() + PATIENCE))
                except Lost as lost:
                    told = told if is_hasty and told is not None else lost
                    await self.back_off(until, told)
                except Said as said:
                    if said.word not in AGAIN:
                        raise translate(said, str(self._address)) from said
                    self.note_where(said)
                    told = said
                    await self.back_off(until, said)
                except StoreReadOnly as error:
                    if self.server is None and not self._address.found:
                        raise  # whoever just starts has the wrong URL; else somebody becomes the primary
                    told = error
                    await self.back_off(until, error)
            self._pause = FIRST_PAUSE
            return self.wire

    async def close(self) -> None:
        """Lets what is under way end: it was accepted, or will be said not to be."""
        self._closed = True
        wire = self.wire
        if wire is not None:
            await wire.finish()
            self.wire = None
            await wire.close()

    def note_where(self, said: Said) -> None:
        if said.word == "MOVED" and self.node is not None:
            self._topology.moved(said, self.node)

    async def back_off(self, until: float, why: Reason) -> None:
        """Raises when there is no time left for another try."""
        pause = self._pause * (0.5 + self._jitter.chance())
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        if self._line.time() + pause >= until - SHORTEST_TRY:
            raise self.error(why) from why
        await self._line.pause(pause)

    def error(self, why: Reason) -> Exception:
        """A verb's caller goes on trying: what is wrong with the settings may be put right meanwhile."""
        if isinstance(why, Lost):
            remedy = "" if self.server else "; check host and port in the URL, and that Redis runs there"
            return StoreUnavailable(f"{self._address}: the server cannot be reached: {why}{remedy}")
        error = translate(why, str(self._address)) if isinstance(why, Said) else why
        return StoreUnavailable(str(error)) if isinstance(error, ConfigurationError) else error

    async def _connect(self, until: float) -> Connection:
        self.node = await self._topology.locate(until)
        wire = await self._line.connect(self.node, self._address.tls, until)
        try:
            self.server = await greet(wire, self._address, self._clock, until)
        except BaseException:
            await wire.close()
            raise
        if self._on_connected is not None:
            self._on_connected()
        return wire
