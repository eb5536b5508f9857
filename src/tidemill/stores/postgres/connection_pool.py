"""The server connections of one event loop. The connection used last is taken first.

asyncpg's own pool resets the session of each returned connection, which costs a second round trip. Tidemill
leaves no state in a session, so it needs no reset."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import asyncpg

from tidemill.stores.postgres.address import PostgresAddress
from tidemill.stores.sockets import open_socket

ServerConnection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CONNECT_TIMEOUT_SECONDS = 5.0
MAX_IDLE_SECONDS = 60.0
"""An idle connection is closed after this time."""
VERB_SETTINGS = {
    "jit": "off",  # compiling takes longer than any statement here
    "enable_seqscan": "off",  # a table that was empty when analysed would always be scanned
    "default_transaction_isolation": "read committed",  # else after waiting for a lock it reads old rows
    "standard_conforming_strings": "on",
    "statement_timeout": "0",  # a verb has its own deadline, and a VACUUM needs its time
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "3s",
}
"""Settings of a session that only this process uses; behind a pooler every transaction sets them itself.

The server ends idle transactions and releases their locks, so that a process stopped in the middle of a
verb does not block others beyond their deadline."""
HANDLER_SETTINGS = {"idle_in_transaction_session_timeout": "10s"}
"""Settings for handler transactions: planning and timeouts stay as the server has them."""


class FallbackLoop:
    """Wraps the event loop for asyncpg. Its `create_connection` tries several addresses of a host name at the
    same time. uvloop would wait at a dead address without a time limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(
        self, factory: Callable[[], Any], host: str, port: int, *, ssl: Any = None
    ) -> tuple[Any, Any]:
        return await self._loop.create_connection(
            factory, sock=await open_socket(host, port), ssl=ssl, server_hostname=host if ssl else None
        )


class ConnectionPool:
    def __init__(self, address: PostgresAddress, session: Mapping[str, str] = VERB_SETTINGS) -> None:
        self._address = address
        self.session = dict(session)
        self.pooled = False
        """True behind a pooler: sessions are shared, so nothing is prepared in them."""
        self._idle: list[tuple[ServerConnection, float]] = []
        self._all: set[ServerConnection] = set()
        self._opening = 0
        self._abandoned: set[asyncio.Task[ServerConnection]] = set()
        """Connections still being opened for cancelled callers."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def begin(self) -> str:
        """The SQL statement that begins a transaction. Behind a pooler it also sets the session settings for
        this transaction."""
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
        if not self.pooled:
            return begin
        return "; ".join([begin, *(f"SET LOCAL {name} = '{value}'" for name, value in self.session.items())])

    def take_idle(self) -> ServerConnection | None:
        """Returns an idle connection; None if there is none. Connections that are known to be closed are
        skipped."""
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._all.discard(connection)
        return None

    async def take(self) -> ServerConnection:
        while True:
            if (connection := self.take_idle()) is not None:
                return connection
            if len(self._all) + self._opening < self._address.connections:
                return await self._open()
            await self._wait_for_connection()

    def give_back(self, connection: ServerConnection) -> None:
        if connection.is_closed() or connection.is_in_transaction():
            self.drop(connection)
            return
        now = asyncio.get_running_loop().time()
        self._idle.append((connection, now))
        if now - self._idle[0][1] > MAX_IDLE_SECONDS:
            self.drop(self._idle.pop(0)[0])
        self._wake_next()

    def drop(self, connection: ServerConnection) -> None:
        """Closes a connection whose state is unknown, and removes it from the connection pool."""
        self._all.discard(connection)
        terminate(connection)
        self._wake_next()

    async def close(self) -> None:
        """Closes all connections. Waits up to 5 s for running store methods to finish (S2)."""
        loop = asyncio.get_running_loop()
        end = loop.time() + CONNECT_TIMEOUT_SECONDS
        while len(self._idle) < len(self._all) and loop.time() < end:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(end):
                    await self._wait_for_connection()
        every, self._idle, self._all = self._all, [], set()
        for connection in every:
            await close_gracefully(connection)
        if self._abandoned:
            await asyncio.wait(self._abandoned)

    async def connect(self) -> ServerConnection:
        """Returns a new connection that is not part of the connection pool. The caller closes it."""
        try:
            return await asyncpg.connect(
                self._address.dsn,
                loop=cast("asyncio.AbstractEventLoop", FallbackLoop(asyncio.get_running_loop())),
                timeout=CONNECT_TIMEOUT_SECONDS,
                server_settings={"application_name": "tidemill"} | ({} if self.pooled else self.session),
                statement_cache_size=0 if self.pooled else 200,
                max_cached_statement_lifetime=0,
            )
        except TimeoutError as error:
            raise ConnectionError(f"no server answered within {CONNECT_TIMEOUT_SECONDS:g} s") from error

    async def _open(self) -> ServerConnection:
        """Opens a connection and adds it to the connection pool. If the caller is cancelled, the opening
        still finishes and the connection is closed."""
        self._opening += 1
        opening = asyncio.create_task(self.connect())
        try:
            connection = await asyncio.shield(opening)  # cancelled, asyncpg leaves an unread exception
        except asyncio.CancelledError:
            self._abandoned.add(opening)
            opening.add_done_callback(self._close_abandoned)
            raise
        finally:
            self._opening -= 1
            self._wake_next()
        self._all.add(connection)
        return connection

    def _close_abandoned(self, opened: asyncio.Task[ServerConnection]) -> None:
        self._abandoned.discard(opened)
        if not opened.cancelled() and opened.exception() is None:
            terminate(opened.result())

    async def _wait_for_connection(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake_next()  # this caller was woken but does not use the connection
            raise

    def _wake_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


def terminate(connection: ServerConnection) -> None:
    with contextlib.suppress(Exception):
        connection.terminate()


async def close_gracefully(connection: ServerConnection) -> None:
    """Closes a connection. If the server does not answer within 1 s, terminates it."""
    try:
        await connection.close(timeout=1)
    except Exception:  # noqa: BLE001 - the connection ends here after any error
        terminate(connection)
