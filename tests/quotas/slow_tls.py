"""A TLS proxy in front of a provider; some of its handshakes take a second."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Self

PATTERNS: dict[str, Callable[[int], bool]] = {
    "every tenth": lambda number: number % 10 == 0,
    "in bursts": lambda number: number % 40 < 10,
}
DELAY = 1.0
"""Seconds: as long as the retransmission of a lost SYN."""


class SlowTLS:
    """Delays the handshake on an accepted connection, so the client knows that it cannot send its request
    yet."""

    def __init__(self, context: ssl.SSLContext, port: int, pattern: str) -> None:
        self._context, self._to, self._is_late = context, port, PATTERNS[pattern]
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._socket.setblocking(False)
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.delayed = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._socket.getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._start(self._accept())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.close()

    def _start(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._socket)
            self.connections += 1
            late = self._is_late(self.connections)
            self.delayed += late
            self._start(self._serve(connection, DELAY if late else 0.0))

    async def _serve(self, connection: socket.socket, delay: float) -> None:
        await asyncio.sleep(delay)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        with suppress(ConnectionError, ssl.SSLError):
            transport, protocol = await loop.connect_accepted_socket(
                lambda: asyncio.StreamReaderProtocol(reader), connection, ssl=self._context
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            upstream, downstream = await asyncio.open_connection("127.0.0.1", self._to)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(_pipe(reader, downstream))
                    both.create_task(_pipe(upstream, writer))
            finally:
                downstream.close()
                writer.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
        writer.close()
