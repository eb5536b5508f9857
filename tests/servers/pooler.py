"""A pooler in front of PostgreSQL that gives a client another connection for every transaction.

What PgBouncer does with `pool_mode = transaction`, as unkindly as it may: a client's next transaction
runs on the connection that has been idle longest, so whatever a session keeps (prepared statements,
session locks, SET, LISTEN) is somebody else's at once. PgBouncer itself is in no wheel, and a test
that needs it would be skipped where nobody installed it.

    async with Pooler(server.port) as pooler:
        store = PostgresStore(pooler.url)
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import Self

from tests.servers.postgres import DATABASE, USER
from tests.servers.program import HOST, free_port

PROTOCOL, TLS, ENCRYPTION = 196608, 80877103, 80877104
# What PgBouncer lets a client say at the beginning; everything else it refuses.
MAY_SAY = {"user", "database", "application_name", "client_encoding", "datestyle", "timezone"}
ENDS_WITH_READY = b"QSF"  # Query, Sync, Function call
BEGINS_A_SEQUENCE = b"PBDECH"  # Parse, Bind, Describe, Execute, Close, Flush; Sync ends it
TERMINATE, READY, NOTIFICATION = b"X", b"Z", b"A"
NO_TRANSACTION = b"I"


class Pooler:
    """`transactions` counts how often a connection was given to a client."""

    def __init__(self, target: int, *, connections: int = 3) -> None:
        self.port = free_port()
        self.transactions = 0
        self._target = target
        self._count = connections
        self._idle: asyncio.Queue[Connection] = asyncio.Queue()
        self._clients: dict[asyncio.Task[None], Client] = {}
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@{HOST}:{self.port}/{DATABASE}"

    async def take(self) -> Connection:
        self.transactions += 1
        return await self._idle.get()

    def give_back(self, connection: Connection) -> None:
        self._idle.put_nowait(connection)

    async def replace(self, connection: Connection) -> None:
        """A client that went away in a transaction leaves nothing that another could use."""
        await connection.close()
        self.give_back(await Connection.to(self._target))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        client = self._clients[task] = Client(self, reader, writer)
        try:
            if await client.greeted():
                await client.serve()
        except (OSError, asyncio.IncompleteReadError):
            pass  # it went away
        finally:
            await client.leave()
            del self._clients[task]

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            self.give_back(await Connection.to(self._target))
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


class Connection:
    """One of the few that the server sees."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.hello = b""

    @classmethod
    async def to(cls, port: int) -> Connection:
        connection = cls(*await asyncio.open_connection(HOST, port))
        said = f"user\0{USER}\0database\0{DATABASE}\0\0".encode()
        connection.writer.write(struct.pack("!ii", len(said) + 8, PROTOCOL) + said)
        kind = b""
        while kind != READY:
            kind, rest = await read_message(connection.reader)
            connection.hello += kind + rest
        return connection

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


class Client:
    def __init__(self, pooler: Pooler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._pooler, self._reader, self._writer = pooler, reader, writer
        self._connection: Connection | None = None
        self._answers: asyncio.Task[None] | None = None
        self._expected = 0  # answers "ready" that are still to come
        self._sequence = False  # messages were sent that a Sync has yet to end

    async def greeted(self) -> bool:
        """Whether it said nothing that PgBouncer refuses."""
        while True:
            size, code = struct.unpack("!ii", await self._reader.readexactly(8))
            said = await self._reader.readexactly(size - 8)
            if code not in (TLS, ENCRYPTION):
                break
            self._writer.write(b"N")
        words = said.decode().split("\0")
        if strange := {word.lower() for word in words[:-2:2]} - MAY_SAY:
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
            if kind in BEGINS_A_SEQUENCE:
                self._sequence = True
            elif kind in ENDS_WITH_READY:
                self._sequence = False
                self._expected += 1
            self._connection.writer.write(kind + rest)

    async def _pass_answers(self, connection: Connection) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while self._connection is not None:
                kind, rest = await read_message(connection.reader)
                if kind == NOTIFICATION:  # for whoever listened on it, who is elsewhere now
                    continue
                if kind == READY:
                    self._expected -= 1
                    if rest.endswith(NO_TRANSACTION) and not self._expected and not self._sequence:
                        self._connection = None
                        self._pooler.give_back(connection)
                self._writer.write(kind + rest)
            return
        self._writer.close()  # the server went away

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
    """Its kind, and its length with what it says."""
    head = await reader.readexactly(5)
    (size,) = struct.unpack("!i", head[1:])
    return head[:1], head[1:] + await reader.readexactly(size - 4)
