"""Two ways to a server: from an event loop, and from a thread that has none.

Both look alike to the shard. On a thread nothing is ever awaited for real: the socket blocks, and the
coroutine of a verb runs to its end at its first step. So every verb is written once.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from threading import Event
from typing import Any, Protocol, TypeVar

import hiredis

from tidemill.clock import SystemClock
from tidemill.stores.redis.address import Node
from tidemill.stores.redis.faults import Lost, Said
from tidemill.stores.redis.forking import close_in_forks
from tidemill.stores.redis.wire import SILENCE, Wire
from tidemill.stores.sockets import open_blocking_socket, open_socket
from tidemill.tls import TlsFiles, client_context

T = TypeVar("T")


class Connection(Protocol):
    """`ask` returns an awaitable of the reply; error replies are replies."""

    lost: Lost | None

    def ask(self, packed: bytes, until: float) -> Any: ...
    def end(self, why: str) -> None: ...
    def abandon(self) -> None: ...
    async def finish(self) -> None: ...
    async def close(self) -> None: ...


class Line(Protocol):
    """`alone` is held by whoever makes the connection all others will use."""

    def time(self) -> float: ...
    def alone(self) -> AbstractAsyncContextManager[Any]: ...
    async def pause(self, seconds: float) -> None: ...
    async def connect(self, node: Node, tls: TlsFiles | None, until: float) -> Connection: ...


class LoopLine:
    """For an event loop; `on_message` gets what channels say that were subscribed to."""

    def __init__(self, on_message: Callable[[bytes], None] | None = None) -> None:
        self._on_message = on_message
        self._lock = asyncio.Lock()
        self.time = asyncio.get_running_loop().time

    def alone(self) -> AbstractAsyncContextManager[Any]:
        return self._lock

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def connect(self, node: Node, tls: TlsFiles | None, until: float) -> Wire:
        loop = asyncio.get_running_loop()
        context = _context(tls)
        try:
            async with asyncio.timeout_at(until):
                if node.path:
                    _, wire = await loop.create_unix_connection(
                        lambda: Wire(loop, self._on_message), node.path
                    )
                else:
                    _, wire = await loop.create_connection(
                        lambda: Wire(loop, self._on_message),
                        sock=await open_socket(node.host, node.port),
                        ssl=context,
                        server_hostname=node.host if tls else None,
                    )
        except OSError as error:
            raise Lost(reason(error, tls)) from error
        return wire


class ThreadLine:
    """For a thread without a loop."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._never = Event()

    def alone(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext()

    def time(self) -> float:
        return self._clock.boot()

    async def pause(self, seconds: float) -> None:
        self._never.wait(seconds)

    async def connect(self, node: Node, tls: TlsFiles | None, until: float) -> Connection:
        try:
            return ThreadWire(_dial(node, tls, max(until - self.time(), 0.001)), self.time)
        except OSError as error:
            raise Lost(reason(error, tls)) from error


class ThreadWire:
    """One connection, one request at a time."""

    def __init__(self, connected: socket.socket, time: Callable[[], float]) -> None:
        self._socket, self._time = connected, time
        self._reader = hiredis.Reader(replyError=Said)
        self.lost: Lost | None = None
        close_in_forks(self)

    async def ask(self, packed: bytes, until: float) -> Any:
        if self.lost is not None:
            raise self.lost
        try:
            self._socket.settimeout(self._left(until))
            self._socket.sendall(packed)
            # Longer silence means that the network forgot the connection: there is time for a new one.
            self._socket.settimeout(min(self._left(until), SILENCE))
            while (reply := self._reader.gets()) is False:
                data = self._socket.recv(65536)
                if not data:
                    raise ConnectionResetError("the server closed the connection")
                self._reader.feed(data)
        except (OSError, hiredis.ProtocolError) as error:
            self.end(reason(error))
            raise Lost(reason(error)) from error
        return reply

    def _left(self, until: float) -> float:
        return max(until - self._time(), 0.001)

    def end(self, why: str) -> None:
        if self.lost is None:
            self.lost = Lost(why)
            self._socket.close()

    def abandon(self) -> None:
        self.end("it was left behind by a fork")

    async def finish(self) -> None:
        """Nothing is under way between two calls."""

    async def close(self) -> None:
        self.end("it was closed")


def _dial(node: Node, tls: TlsFiles | None, seconds: float) -> socket.socket:
    context = _context(tls)
    if node.path:
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(seconds)
    else:
        plain = open_blocking_socket(node.host, node.port, seconds)
    try:
        if node.path:
            plain.connect(node.path)
        return context.wrap_socket(plain, server_hostname=node.host) if context else plain
    except BaseException:
        plain.close()
        raise


def _context(tls: TlsFiles | None) -> ssl.SSLContext | None:
    return None if tls is None else client_context(tls, source="url (rediss://…)")


def finished(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that waits for nothing: one whose shard is on a thread's line."""
    try:
        work.send(None)
    except StopIteration as over:
        result: T = over.value
        return result
    work.close()
    raise RuntimeError("a verb waited for an event loop on a thread that has none")


def reason(error: Exception, tls: TlsFiles | None = None) -> str:
    match error:
        case TimeoutError():
            return "it did not answer in time" + ("; is this a TLS port?" if tls else "")
        case ConnectionRefusedError():
            return "connection refused"
        case socket.gaierror():
            return "no machine has this name"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({error.verify_message}); name its authority with ?ca="
        case ssl.SSLError():
            return f"the TLS handshake failed ({error.reason}); is this a TLS port?"
        case OSError() if error.strerror:
            return error.strerror[:1].lower() + error.strerror[1:]
        case _:
            return str(error) or type(error).__name__
