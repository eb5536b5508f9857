"""A connection pooler for PostgreSQL that gives a client another connection for every transaction.

It acts like PgBouncer with `pool_mode = transaction`, in the worst possible way: a client's next
transaction runs on the connection that has been idle longest. So another client gets all session state
at once: prepared statements, session locks, SET, LISTEN. No wheel contains PgBouncer, and a test that
needs it would be skipped without an installation.

    async with Pooler(server.port) as pooler:
        store = PostgresStore(pooler.url)"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import Self

from tests.servers.postgres import DATABASE, USER
from tests.servers.program import HOST, free_port

PROTOCOL, TLS, ENCRYPTION = 196608, 80877103, 80877104
# Startup parameters that PgBouncer accepts; it refuses all others.
ALLOWED_PARAMETERS = {"user", "database", "application_name", "client_encoding", "datestyle", "timezone"}
READY_MESSAGES = b"QSF"  # Query, Sync, Function call
SEQUENCE_START_MESSAGES = b"PBDECH"  # Parse, Bind, Describe, Execute, Close, Flush; Sync ends it
TERMINATE, READY, NOTIFICATION = b"X", b"Z", b"A"
NO_TRANSACTION = b"I"


class Pooler:
    """The pooler. `transactions` counts how often a client got a connection."""

    def __init__(self, target: int, *, connections: int = 3) -> None:
        self.port = free_port()
        self.transactions = 0
        self._target = target
        self._count = connections
        self._idle: asyncio.Queue[ServerConnection] = asyncio.Queue()
        self._clients: dict[asyncio.Task[None], PoolerClient] = {}
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@{HOST}:{self.port}/{DATABASE}"

    async def take(self) -> ServerConnection:
        self.transactions += 1
        return await self._idle.get()

    def give_back(self, connection: ServerConnection) -> None:
        self._idle.put_nowait(connection)

    async def replace(self, connection: ServerConnection) -> None:
        """Replaces the connection of a client that disconnected inside a transaction."""
        await connection.close()
        self.give_back(await ServerConnection.to(self._target))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        client = self._clients[task] = PoolerClient(self, reader, writer)
        try:
            if await client.greeted():
                await client.serve()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client disconnected
        finally:
            await client.leave()
            del self._clients[task]

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            self.give_back(await ServerConnection.to(self._target))
        self._server = await asyncio.start_server(self._serve, HOST, self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for client in self._clients.values():
            client.send_away()
        await asyncio.gather(*self._clients)
        while not self._idle.empty():
            await self._idle.get_nowait().close()


class ServerConnection:
    """One of the few connections to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.hello = b""

    @classmethod
    async def to(cls, port: int) -> ServerConnection:
        connection = cls(*await asyncio.open_connection(HOST, port))
        parameters = f"user\0{USER}\0database\0{DATABASE}\0\0".encode()
        connection.writer.write(struct.pack("!ii", len(parameters) + 8, PROTOCOL) + parameters)
        kind = b""
        while kind != READY:
            kind, rest = await read_message(connection.reader)
            connection.hello += kind + rest
        return connection

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


class PoolerClient:
    def __init__(self, pooler: Pooler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._pooler, self._reader, self._writer = pooler, reader, writer
        self._connection: ServerConnection | None = None
        self._answers: asyncio.Task[None] | None = None
        self._expected = 0  # "ready" messages that are still to come
        self._sequence = False  # messages were sent that need a Sync

    async def greeted(self) -> bool:
        """Returns whether the startup message has nothing that PgBouncer refuses."""
        while True:
            size, code = struct.unpack("!ii", await self._reader.readexactly(8))
            parameters = await self._reader.readexactly(size - 8)
            if code not in (TLS, ENCRYPTION):
                break
            self._writer.write(b"N")
        words = parameters.decode().split("\0")
        if strange := {word.lower() for word in words[:-2:2]} - ALLOWED_PARAMETERS:
            self._refuse(f"unsupported startup parameter: {', '.join(sorted(strange))}")
            return False
        connection = await self._pooler.take()
        self._writer.write(connection.hello)
        self._pooler.give_back(connection)
        return bool(code == PROTOCOL)

    def _refuse(self, sentence: str) -> None:
        fields = f"SFATAL\0VFATAL\0C08P01\0M{sentence}\0\0".encode()
        self._writer.write(b"E" + struct.pack("!i", len(fields) + 4) + fields)

    async def serve(self) -> None:
        while True:
            kind, rest = await read_message(self._reader)
            if kind == TERMINATE:
                return
            if self._connection is None:
                self._connection = await self._pooler.take()
                self._answers = asyncio.create_task(self._pass_answers(self._connection))
            if kind in SEQUENCE_START_MESSAGES:
                self._sequence = True
            elif kind in READY_MESSAGES:
                self._sequence = False
                self._expected += 1
            self._connection.writer.write(kind + rest)

    async def _pass_answers(self, connection: ServerConnection) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while self._connection is not None:
                kind, rest = await read_message(connection.reader)
                if kind == NOTIFICATION:  # a notification for a client that now has another connection
                    continue
                if kind == READY:
                    self._expected -= 1
                    if rest.endswith(NO_TRANSACTION) and not self._expected and not self._sequence:
                        self._connection = None
                        self._pooler.give_back(connection)
                self._writer.write(kind + rest)
            return
        self._writer.close()  # the server disconnected

    def send_away(self) -> None:
        self._writer.transport.abort()

    async def leave(self) -> None:
        if self._answers is not None:
            self._answers.cancel()
            await asyncio.gather(self._answers, return_exceptions=True)
        if self._connection is not None:
            await self._pooler.replace(self._connection)
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Returns the type of a message, and its length with its content."""
    head = await reader.readexactly(5)
    (size,) = struct.unpack("!i", head[1:])
    return head[:1], head[1:] + await reader.readexactly(size - 4)
