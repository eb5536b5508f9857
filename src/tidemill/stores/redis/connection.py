"""Connections to a server: one kind for an event loop, one for a thread without an event loop.

Both kinds have the same interface, so every store method is written once, as a coroutine. On a blocking
connection this coroutine never suspends."""

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
from tidemill.stores.redis.address import RedisNode
from tidemill.stores.redis.errors import ConnectionLostError, RedisReplyError
from tidemill.stores.redis.protocol import MAX_SILENCE_SECONDS, RedisProtocol, close_in_forks
from tidemill.stores.sockets import open_blocking_socket, open_socket
from tidemill.tls import TlsFiles, client_context

T = TypeVar("T")


class RedisConnection(Protocol):
    """One connection. Await the result of `ask` to get the reply; an error reply is returned and not raised.
    `lost`: the error that ended the connection; None while it is open."""

    lost: ConnectionLostError | None

    def ask(self, packed: bytes, until: float) -> Any: ...
    def end(self, reason: str) -> None: ...
    def abandon(self) -> None: ...
    async def finish(self) -> None: ...
    async def close(self) -> None: ...


class ConnectionFactory(Protocol):
    """Opens connections of one kind. Hold `connect_lock` to open a connection that several callers share.
    `time`: the clock of deadlines."""

    def time(self) -> float: ...
    def connect_lock(self) -> AbstractAsyncContextManager[Any]: ...
    async def pause(self, seconds: float) -> None: ...
    async def connect(self, node: RedisNode, tls: TlsFiles | None, until: float) -> RedisConnection: ...


class LoopConnectionFactory:
    """Opens connections for an event loop. `on_message` is called with each message of a subscribed
    channel."""

    def __init__(self, on_message: Callable[[bytes], None] | None = None) -> None:
        self._on_message = on_message
        self._lock = asyncio.Lock()
        self.time = asyncio.get_running_loop().time

    def connect_lock(self) -> AbstractAsyncContextManager[Any]:
        return self._lock

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def connect(self, node: RedisNode, tls: TlsFiles | None, until: float) -> RedisProtocol:
        loop = asyncio.get_running_loop()
        context = _ssl_context(tls)
        try:
            async with asyncio.timeout_at(until):
                if node.path:
                    _, connection = await loop.create_unix_connection(
                        lambda: RedisProtocol(loop, self._on_message), node.path
                    )
                else:
                    _, connection = await loop.create_connection(
                        lambda: RedisProtocol(loop, self._on_message),
                        sock=await open_socket(node.host, node.port),
                        ssl=context,
                        server_hostname=node.host if tls else None,
                    )
        except OSError as error:
            raise ConnectionLostError(describe_socket_error(error, tls)) from error
        return connection


class ThreadConnectionFactory:
    """Opens blocking connections for a thread without an event loop."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._never = Event()

    def connect_lock(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext()

    def time(self) -> float:
        return self._clock.boot()

    async def pause(self, seconds: float) -> None:
        self._never.wait(seconds)

    async def connect(self, node: RedisNode, tls: TlsFiles | None, until: float) -> RedisConnection:
        try:
            return BlockingRedisConnection(
                _open_blocking_socket(node, tls, max(until - self.time(), 0.001)), self.time
            )
        except OSError as error:
            raise ConnectionLostError(describe_socket_error(error, tls)) from error


class BlockingRedisConnection:
    """A blocking connection that handles one request at a time. `time` is the clock of the deadlines."""

    def __init__(self, connected: socket.socket, time: Callable[[], float]) -> None:
        self._socket, self._time = connected, time
        self._reader = hiredis.Reader(replyError=RedisReplyError)
        self.lost: ConnectionLostError | None = None
        close_in_forks(self)

    async def ask(self, packed: bytes, until: float) -> Any:
        if self.lost is not None:
            raise self.lost
        try:
            self._socket.settimeout(self._left(until))
            self._socket.sendall(packed)
            # After a longer silence the network may have dropped the connection, so it is made again.
            self._socket.settimeout(min(self._left(until), MAX_SILENCE_SECONDS))
            while (reply := self._reader.gets()) is False:
                data = self._socket.recv(65536)
                if not data:
                    raise ConnectionResetError("the server closed the connection")
                self._reader.feed(data)
        except (OSError, hiredis.ProtocolError) as error:
            self.end(describe_socket_error(error))
            raise ConnectionLostError(describe_socket_error(error)) from error
        return reply

    def _left(self, until: float) -> float:
        return max(until - self._time(), 0.001)

    def end(self, reason: str) -> None:
        if self.lost is None:
            self.lost = ConnectionLostError(reason)
            self._socket.close()

    def abandon(self) -> None:
        self.end("it was left behind by a fork")

    async def finish(self) -> None:
        """Does nothing: no request is in flight between two calls."""

    async def close(self) -> None:
        self.end("it was closed")


def _open_blocking_socket(node: RedisNode, tls: TlsFiles | None, seconds: float) -> socket.socket:
    context = _ssl_context(tls)
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


def _ssl_context(tls: TlsFiles | None) -> ssl.SSLContext | None:
    return None if tls is None else client_context(tls, source="url (rediss://…)")


def run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine without an event loop and returns its result. Raises RuntimeError if the coroutine
    suspends."""
    try:
        work.send(None)
    except StopIteration as over:
        result: T = over.value
        return result
    work.close()
    raise RuntimeError("a verb waited for an event loop on a thread that has none")


def describe_socket_error(error: Exception, tls: TlsFiles | None = None) -> str:
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
