"""A network with faults on demand: a TCP proxy in front of a server, in the test's event loop.

    async with Proxy(server.port) as proxy:
        store = connect(proxy.port)
        lost = proxy.cut_after(0)   # the server executes the request; the reply is lost
        await store.insert(...)
        await lost                  # the reply was lost

With `tls`, it speaks TLS to the client and plain TCP to the server, because not every server supports
TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from contextlib import suppress
from typing import Self

from tests.servers.program import HOST, free_port

# Zero seconds to deliver the rest: closing sends a reset.
LINGER_ZERO = struct.pack("ii", 1, 0)
CHUNK = 1 << 16


class Proxy:
    """The proxy. `connections` counts all connections so far. `delay` holds every piece of a reply for
    these seconds."""

    def __init__(self, target: int, *, tls: ssl.SSLContext | None = None) -> None:
        self.port = free_port()
        self.connections = 0
        self.delay = 0.0
        self._target = target
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: set[ProxyConnection] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._cut: asyncio.Future[None] | None = None
        self._left = 0

    async def refuse(self) -> None:
        """Refuses new connections, as if no server listened. Existing ones continue."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def accept(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, HOST, self.port, ssl=self._tls)

    def reset(self) -> None:
        """Breaks every connection on both sides."""
        for link in self._links:
            link.reset()

    def cut_after(self, count: int) -> asyncio.Future[None]:
        """Breaks the connection that carries the reply after `count` more bytes of replies."""
        self._left = count
        self._cut = asyncio.get_running_loop().create_future()
        return self._cut

    def hold(self) -> None:
        """Holds all data in both directions without an error, like a pulled cable."""
        self._passing.clear()

    def release(self) -> None:
        """Delivers the held data late, like after an outage of the network."""
        self._passing.set()

    def forget(self) -> None:
        """Closes the server's side of all connections and leaves the clients' side open, like a restarted
        firewall."""
        for link in self._links:
            link.forget()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, writer)
        except OSError:  # no server: the client sees the same as without the proxy
            _abort(writer)
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = ProxyConnection(reader, writer, *await asyncio.open_connection(HOST, self._target))
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._questions(link))
                both.create_task(self._answers(link))
            await link.closed()
        finally:
            self._links.discard(link)
            link.reset()

    async def _questions(self, link: ProxyConnection) -> None:
        while data := await link.read_request():
            await self._passing.wait()
            link.ask(data)
        link.no_more_questions()

    async def _answers(self, link: ProxyConnection) -> None:
        while data := await link.answered():
            if self.delay:
                await asyncio.sleep(self.delay)
            await self._passing.wait()
            if self._cut is not None and len(data) >= self._left:
                link.answer(data[: self._left])
                if not self._cut.cancelled():  # by a test that no longer awaits it
                    self._cut.set_result(None)
                self._cut = None
                await link.delivered()
                link.reset()
                return
            self._left -= len(data)
            link.answer(data)
        link.no_more_answers()

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks)


class ProxyConnection:
    """One connection from the client to the proxy, and from the proxy to the server."""

    def __init__(
        self,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        self._from_client, self._to_client = from_client, to_client
        self._from_server, self._to_server = from_server, to_server
        self._forgotten = False

    async def read_request(self) -> bytes:
        return await _read(self._from_client)

    async def answered(self) -> bytes:
        return await _read(self._from_server)

    def ask(self, data: bytes) -> None:
        if not self._forgotten:
            self._to_server.write(data)

    def answer(self, data: bytes) -> None:
        self._to_client.write(data)

    async def delivered(self) -> None:
        with suppress(OSError):
            await self._to_client.drain()

    def no_more_questions(self) -> None:
        if not self._forgotten and self._to_server.can_write_eof():
            self._to_server.write_eof()

    def no_more_answers(self) -> None:
        if not self._forgotten:
            self._to_client.close()

    def forget(self) -> None:
        self._forgotten = True
        _abort(self._to_server)

    async def closed(self) -> None:
        """Waits until both sides are closed and all data is delivered."""
        for writer in (self._to_client, self._to_server):
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def reset(self) -> None:
        _abort(self._to_client)
        _abort(self._to_server)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Reads data; empty at the end, also after a reset."""
    try:
        return await reader.read(CHUNK)
    except OSError:
        return b""


def _abort(writer: asyncio.StreamWriter) -> None:
    if not writer.transport.is_closing():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
    with suppress(AttributeError):  # Python 3.11.2 cannot abort a TLS connection that has ended
        writer.transport.abort()
