"""One connection on an event loop: requests leave in order, replies come back in the same order.

Any number may be under way, so whoever calls never waits for a connection, and a lone call pays for
no pool. What is under way is watched by one timer for all: a deadline of its own per call costs more
than the packing of the call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

from tidemill.stores.redis.faults import Lost, Said
from tidemill.stores.redis.forking import close_in_forks, close_silently

LOOK_EVERY = 0.25
SILENCE = 2.0
"""A server that takes and gives not a byte for so long is asked again, on a new connection."""

Argument = bytes | str | int | float
pack = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)
"""A command as it goes over the wire; the package's own annotation knows only commands of one word."""


class Wire(asyncio.Protocol):
    """`lost` says why the connection is over, once it is. `on_message` gets what a channel says that was
    subscribed to."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_message: Callable[[bytes], None] | None = None
    ) -> None:
        self._loop, self._on_message = loop, on_message
        self._reader = hiredis.Reader(replyError=Said)
        self._under_way: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._moved_at, self._unsent = 0.0, 0
        self.lost: Lost | None = None
        self.over: asyncio.Future[None] = loop.create_future()
        """Done when the socket is closed."""

    def ask(self, packed: bytes, until: float) -> asyncio.Future[Any]:
        """A reply that has not come by `until` (the loop's time) ends the connection: those behind
        it would not come either."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.lost is not None or self._transport is None:
            answer.set_exception(self.lost or Lost("it is not connected"))
            return answer
        self._under_way.append((answer, until))
        if self._watch is None:
            self._moved_at = self._loop.time()
            self._watch = self._loop.call_later(LOOK_EVERY, self._look)
        self._transport.write(packed)
        return answer

    async def close(self) -> None:
        """Returns when the socket is closed."""
        self.end("it was closed")
        await asyncio.shield(self.over)

    async def finish(self) -> None:
        """Returns when nobody waits for a reply; the watch sees to it that this is soon.

        Whoever was answered may have to ask on, and comes to it in the loop's next round: only two quiet
        rounds one after the other are an end."""
        quiet = 0
        while quiet < 2:  # noqa: PLR2004 - see above
            if waited_for := [answer for answer, _ in self._under_way if not answer.done()]:
                quiet = 0
                await asyncio.wait(waited_for)
            else:
                quiet += 1
                await asyncio.sleep(0)

    def abandon(self) -> None:
        """The loop is closed, or another process's: only the socket is let go of."""
        self.lost = self.lost or Lost("it was left behind by a fork or with its event loop")
        self._under_way.clear()
        if self._transport is not None:
            close_silently(self._transport)

    def end(self, why: str) -> None:
        if self.lost is None:
            self._fail(Lost(why))
            if self._transport is not None:
                self._transport.abort()

    # -- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        close_in_forks(self)

    def data_received(self, data: bytes) -> None:
        self._moved_at = self._loop.time()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                if self._on_message is not None and type(reply) is list and reply[0] == b"message":
                    self._on_message(reply[2])
                    continue
                answer, _ = self._under_way.popleft()
                if not answer.done():
                    answer.set_result(reply)
        except (hiredis.ProtocolError, IndexError):
            self.end("what answers there does not speak as Redis does")

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(Lost(f"the connection was lost ({error})" if error else "the server closed it"))
        if not self.over.done():
            self.over.set_result(None)

    def _look(self) -> None:
        """A long request on a slow network is not silence: it is still being taken."""
        self._watch = None
        if not self._under_way or self._transport is None:
            return
        now, unsent = self._loop.time(), self._transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._moved_at = now
        self._unsent = unsent
        if now >= self._under_way[0][1] or now - self._moved_at >= SILENCE:
            self.end("it did not answer in time")
        else:
            self._watch = self._loop.call_later(LOOK_EVERY, self._look)

    def _fail(self, lost: Lost) -> None:
        if self.lost is not None:
            return
        self.lost = lost
        if self._watch is not None:
            self._watch.cancel()
        while self._under_way:
            answer, _ = self._under_way.popleft()
            if not answer.done():
                answer.set_exception(Lost(*lost.args))
                answer.exception()  # nobody may be left to hear it
