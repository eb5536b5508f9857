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

LOOK_EVERY = 0.25

Argument = bytes | str | int | float
pack = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)
"""A command as it goes over the wire; the package's own annotation knows only commands of one word."""


class Wire(asyncio.Protocol):
    """`on_push` gets what the server sends unasked. `lost` says why the connection is over, once it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_push: Callable[[list[Any]], None]) -> None:
        self._loop, self._on_push = loop, on_push
        self._reader = hiredis.Reader(replyError=Said)
        self._under_way: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._closed: asyncio.Future[None] = loop.create_future()
        self.lost: Lost | None = None

    def ask(self, packed: bytes, until: float) -> asyncio.Future[Any]:
        """A reply that has not come by `until` (the loop's time) ends the connection: those behind
        it would not come either."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.lost is not None or self._transport is None:
            answer.set_exception(self.lost or Lost("it is not connected"))
            return answer
        self._under_way.append((answer, until))
        if self._watch is None:
            self._watch = self._loop.call_later(LOOK_EVERY, self._look)
        self._transport.write(packed)
        return answer

    async def close(self) -> None:
        """Returns when the socket is closed."""
        self.end("it was closed")
        await asyncio.shield(self._closed)

    def end(self, why: str) -> None:
        if self.lost is None:
            self._over(Lost(why))
            if self._transport is not None:
                self._transport.abort()

    # -- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream has one
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                if type(reply) is hiredis.PushNotification:
                    self._on_push(reply)
                else:
                    answer, _ = self._under_way.popleft()
                    if not answer.done():
                        answer.set_result(reply)
        except (hiredis.ProtocolError, IndexError):
            self.end("what answers does not speak the protocol of Redis")

    def connection_lost(self, error: Exception | None) -> None:
        self._over(
            Lost(f"the connection was lost ({error})" if error else "the server closed the connection")
        )
        if not self._closed.done():
            self._closed.set_result(None)

    def _look(self) -> None:
        self._watch = None
        if not self._under_way:
            return
        if self._under_way[0][1] <= self._loop.time():
            self.end("it did not answer in time")
        else:
            self._watch = self._loop.call_later(LOOK_EVERY, self._look)

    def _over(self, lost: Lost) -> None:
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
