"""The connection on which a store object receives notifications. Wakes all listeners after a reconnect,
because notifications may have been missed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from tidemill.stores.postgres.connection_pool import (
    ConnectionPool,
    ServerConnection,
    close_gracefully,
    terminate,
)
from tidemill.stores.postgres.errors import DRIVER_ERRORS
from tidemill.stores.postgres.rows import text_array
from tidemill.stores.postgres.statements import load_statements

SQL = load_statements("wakeups")

KEEPALIVE_SECONDS, KEEPALIVE_TIMEOUT_SECONDS = 30.0, 5.0
"""Interval of a keepalive query, and its timeout: a connection that the network dropped looks like an idle
one."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 5.0


class ListenConnection:
    """Registers waiting listeners on the server and receives their notifications.

    - `notified`: called with the wait id and the topic of each notification
    - `reopened`: called after a reconnect, because notifications may have been missed"""

    def __init__(
        self,
        pool: ConnectionPool,
        qualify: Callable[[str], str],
        notified: Callable[[int, str], None],
        reopened: Callable[[], None],
    ) -> None:
        self._pool, self._qualify = pool, qualify
        self._on_notified, self._on_reopened = notified, reopened
        self._new_waits: dict[int, tuple[str, ...]] = {}
        self._sent_waits: dict[int, tuple[str, ...]] = {}
        self._ended_waits: list[int] = []
        self._work = asyncio.Event()
        self._registered: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self.pid = 0
        """Process id of the connection on the server."""

    @property
    def is_registering(self) -> bool:
        """True while some armed listeners (listeners that wait for a wake-up) are not yet registered on the
        server."""
        return self._registered is not None

    def is_unregistered(self, wait_id: int) -> bool:
        return wait_id in self._new_waits or wait_id in self._sent_waits

    def register(self, wait_id: int, topics: tuple[str, ...]) -> None:
        self._new_waits[wait_id] = topics
        if self._registered is None:
            self._registered = asyncio.get_running_loop().create_future()
        self._work.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._listen())

    def unregister(self, wait_id: int) -> None:
        if self._new_waits.pop(wait_id, None) is None:
            self._ended_waits.append(wait_id)
            self._work.set()

    async def registered(self, time_limit: float) -> None:
        """Waits until all armed listeners (listeners that wait for a wake-up) are registered on the server,
        at most `time_limit` seconds."""
        if self._registered is not None:
            await asyncio.wait([self._registered], timeout=time_limit)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self._all_registered()

    async def _listen(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                connection = await self._open()
            except DRIVER_ERRORS:
                self._all_registered()
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)
                continue
            pause = _FIRST_PAUSE_SECONDS
            try:
                await self._serve(connection)
            except DRIVER_ERRORS:
                terminate(connection)
            except BaseException:
                await close_gracefully(connection)
                raise
            self._all_registered()
            self._on_reopened()

    async def _open(self) -> ServerConnection:
        connection = await self._pool.connect()
        try:
            await connection.add_listener(f"tidemill_{connection.get_server_pid()}", self._notified)
            connection.add_termination_listener(lambda _: self._work.set())
            await connection.fetch(self._qualify(SQL.listen))
            self.pid = connection.get_server_pid()
        except BaseException:
            terminate(connection)
            raise
        return connection

    async def _serve(self, connection: ServerConnection) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KEEPALIVE_SECONDS):
                    await self._work.wait()
            if not self._work.is_set():
                await connection.fetch("SELECT", timeout=KEEPALIVE_TIMEOUT_SECONDS)
            self._work.clear()
            if connection.is_closed():
                raise ConnectionResetError
            ended, self._ended_waits = self._ended_waits, []
            if ended:
                await connection.fetch(self._qualify(SQL.stop_listening), text_array(ended))
            self._sent_waits, self._new_waits = self._new_waits, {}
            if self._sent_waits:
                await connection.fetch(self._qualify(SQL.listen_for), *_columns(self._sent_waits.items()))
            if not self._new_waits:
                self._all_registered()

    def _all_registered(self) -> None:
        self._sent_waits = {}
        registered, self._registered = self._registered, None
        if registered is not None and not registered.done():
            registered.set_result(None)

    def _notified(self, *arguments: object) -> None:
        """Handles a notification of asyncpg. The last argument is the payload: a wait id, a space and a
        topic."""
        wait_id, _, topic = str(arguments[-1]).partition(" ")
        self._on_notified(int(wait_id), topic)


def _columns(waits: Iterable[tuple[int, tuple[str, ...]]]) -> tuple[list[str], list[str | None]]:
    rows = [(topic, wait_id) for wait_id, topics in waits for topic in topics]
    return [topic for topic, _ in rows], text_array(wait_id for _, wait_id in rows)
