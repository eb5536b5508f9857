"""One asyncio connection that speaks the Redis protocol (RESP). A forked process closes its copies of the
connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast
from weakref import WeakSet

import hiredis

from tidemill.stores.redis.errors import ConnectionLostError, RedisReplyError


class AbandonableConnection(Protocol):
    def abandon(self) -> None: ...


_open_connections: WeakSet[AbandonableConnection] = WeakSet()


def close_in_forks(connection: AbandonableConnection) -> None:
    _open_connections.add(connection)


def close_silently(transport: asyncio.BaseTransport) -> None:
    """Closes the socket of a transport whose event loop is closed or belongs to another process. The
    transport's own `close` needs the event loop, so this function uses private attributes."""
    hidden: Any = transport
    layered = getattr(hidden, "_ssl_protocol", None)
    if layered is not None:
        hidden._closed = True  # noqa: SLF001 - see above
        hidden = layered._transport  # noqa: SLF001
    plain = getattr(hidden, "_sock", None)
    if plain is not None:
        plain.close()
        hidden._sock = None  # noqa: SLF001


def _in_child() -> None:
    for connection in list(_open_connections):
        connection.abandon()
    _open_connections.clear()


with contextlib.suppress(AttributeError):  # no forks on this system
    os.register_at_fork(after_in_child=_in_child)


TIMEOUT_CHECK_SECONDS = 0.25
MAX_SILENCE_SECONDS = 2.0
"""After this many seconds without a byte in either direction the request is sent on a new connection."""

CommandArgument = bytes | str | int | float
pack_command = cast("Callable[[tuple[CommandArgument, ...]], bytes]", hiredis.pack_command)
"""Packs a command for the wire. redis-py annotates only commands of one word."""


class RedisProtocol(asyncio.Protocol):
    """One connection. `lost`: the error that ended the connection; None while it is open. `on_message`:
    called with each message of a subscribed channel."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_message: Callable[[bytes], None] | None = None
    ) -> None:
        self._loop, self._on_message = loop, on_message
        self._reader = hiredis.Reader(replyError=RedisReplyError)
        self._in_flight: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._progress_at, self._unsent = 0.0, 0
        self.lost: ConnectionLostError | None = None
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done when the socket is closed."""

    def ask(self, packed: bytes, until: float) -> asyncio.Future[Any]:
        """Sends a packed command and returns a future of its reply. `until`: the deadline in loop time. A
        late reply closes the connection, and all requests in flight fail."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.lost is not None or self._transport is None:
            answer.set_exception(self.lost or ConnectionLostError("it is not connected"))
            return answer
        self._in_flight.append((answer, until))
        if self._watch is None:
            self._progress_at = self._loop.time()
            self._watch = self._loop.call_later(TIMEOUT_CHECK_SECONDS, self._check_progress)
        self._transport.write(packed)
        return answer

    async def close(self) -> None:
        """Closes the connection at once and waits until the socket is closed. Requests in flight fail."""
        self.end("it was closed")
        await asyncio.shield(self.closed)

    async def finish(self) -> None:
        """Waits until no request is in flight for two iterations of the loop. A caller that got its reply may
        send another request in the next iteration."""
        quiet = 0
        while quiet < 2:  # noqa: PLR2004 - see above
            if pending := [answer for answer, _ in self._in_flight if not answer.done()]:
                quiet = 0
                await asyncio.wait(pending)
            else:
                quiet += 1
                await asyncio.sleep(0)

    def abandon(self) -> None:
        """Closes only the socket, because the event loop is closed or belongs to another process."""
        self.lost = self.lost or ConnectionLostError("it was left behind by a fork or with its event loop")
        self._in_flight.clear()
        if self._transport is not None:
            close_silently(self._transport)

    def end(self, reason: str) -> None:
        if self.lost is None:
            self._fail(ConnectionLostError(reason))
            if self._transport is not None:
                self._transport.abort()

    # -- callbacks of the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        close_in_forks(self)

    def data_received(self, data: bytes) -> None:
        self._progress_at = self._loop.time()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                if self._on_message is not None and type(reply) is list and reply[0] == b"message":
                    self._on_message(reply[2])
                    continue
                answer, _ = self._in_flight.popleft()
                if not answer.done():
                    answer.set_result(reply)
        except (hiredis.ProtocolError, IndexError):
            self.end("the server there does not speak the Redis protocol")

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(
            ConnectionLostError(f"the connection was lost ({error})" if error else "the server closed it")
        )
        if not self.closed.done():
            self.closed.set_result(None)

    def _check_progress(self) -> None:
        """Ends the connection if a reply is late, or if nothing was sent or received for 2 s during a
        request."""
        self._watch = None
        if not self._in_flight or self._transport is None:
            return
        now, unsent = self._loop.time(), self._transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._progress_at = now
        self._unsent = unsent
        if now >= self._in_flight[0][1] or now - self._progress_at >= MAX_SILENCE_SECONDS:
            self.end("it did not answer in time")
        else:
            self._watch = self._loop.call_later(TIMEOUT_CHECK_SECONDS, self._check_progress)

    def _fail(self, lost: ConnectionLostError) -> None:
        if self.lost is not None:
            return
        self.lost = lost
        if self._watch is not None:
            self._watch.cancel()
        while self._in_flight:
            answer, _ = self._in_flight.popleft()
            if not answer.done():
                answer.set_exception(ConnectionLostError(*lost.args))
                answer.exception()  # the caller may be cancelled
