"""Runs statements and transactions with a deadline and retries.

Every store method ends with an answer or an error before its deadline (I22). A method is retried if the
connection was lost or the server rolled the transaction back. If the connection was lost during a commit,
only a method with `repeatable=True` is retried (J1)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg

from tidemill.clock import Clock, SystemEntropy
from tidemill.errors import StoreUnavailable
from tidemill.stores.postgres import migrations, statements
from tidemill.stores.postgres.address import PostgresAddress
from tidemill.stores.postgres.clock import PostgresClock
from tidemill.stores.postgres.connection_pool import HANDLER_SETTINGS, ConnectionPool, ServerConnection
from tidemill.stores.postgres.errors import (
    DRIVER_ERRORS,
    FailureKind,
    classify_error,
    timeout_error,
    translate,
)
from tidemill.stores.postgres.transaction import PostgresTransaction
from tidemill.stores.postgres.wakeups import PostgresWakeups

T = TypeVar("T")
Record = asyncpg.Record

VERB_TIMEOUT_SECONDS = 5.0
"""Longest time of a verb, including retries (I22)."""

_inherited_connections: list[Any] = []
"""Connections of a parent process. Never used and never freed: closing one would end the parent's session."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.02, 1.0


class PostgresConnection:
    """Runs the store's operations on the server, over a connection pool. `clock`: the clock of a test; None
    means the server's clock."""

    def __init__(self, address: PostgresAddress, clock: Clock | None) -> None:
        self.address = address
        self.clock = PostgresClock(clock)
        self._jitter = (
            SystemEntropy().chance
        )  # not the test's entropy: pauses must not consume its random numbers
        self._qualified: dict[str, str] = {}
        self._start()

    def _start(self) -> None:
        self.pool = ConnectionPool(self.address)
        self.handler_pool = ConnectionPool(self.address, HANDLER_SETTINGS)
        """Connections for handler transactions: as many again."""
        self.wakeups = PostgresWakeups(self.address, self.pool, self.qualify, self.fetch)
        self._open = False
        self._pid = os.getpid()

    def check_fork(self) -> None:
        """Replaces all connections if this process was forked since they were made. The old connections
        belong to the parent process."""
        if self._pid != os.getpid():
            _inherited_connections.append((self.pool, self.handler_pool, self.wakeups))
            self._start()

    async def open(self) -> None:
        """Connects to the server and creates or migrates the schema. If the server cannot be used, raises at
        once, without retries (S1)."""
        self.check_fork()
        async with self._opening():
            await migrations.prepare_schema(self.pool, self.address, self.clock)
        self.handler_pool.pooled = self.pool.pooled
        self._open = True

    async def is_created(self) -> bool:
        """True if the store's tables exist (U9). Changes nothing."""
        self.check_fork()
        async with self._opening():
            return await migrations.has_schema(self.pool, self.address)

    @asynccontextmanager
    async def _opening(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(migrations.OPEN_TIMEOUT_SECONDS):
                yield
        except TimeoutError as error:
            raise timeout_error(None, self.address) from error
        except DRIVER_ERRORS as error:
            raise translate(error, self.address) from error

    async def close(self) -> None:
        self.check_fork()
        await self.wakeups.close()
        self._open = False
        await self.pool.close()
        await self.handler_pool.close()

    def announce(self, topics: Iterable[str], ended: Collection[str] = ()) -> None:
        """Wakes the listeners of `topics`, and the listeners that wait for the end of the jobs `ended`. Call
        this after `fetch`; `run` does it by itself."""
        self.wakeups.announce(topics, ended)

    async def fetch(
        self, sql: str, *values: Any, repeatable: bool = True, time_limit: float = VERB_TIMEOUT_SECONDS
    ) -> list[Record]:
        """Runs one statement as a transaction of its own, and returns its rows. `repeatable=True`: retry even
        if the commit may have succeeded. `time_limit`: seconds for all tries together."""
        self._check_open()
        statement = self._qualified.get(sql) or self.qualify(sql)
        connection = None if self.wakeups.is_registering else self.pool.take_idle()
        if connection is None:
            return await self._fetch(statement, values, repeatable=repeatable, time_limit=time_limit)
        began = asyncio.get_running_loop().time()
        try:
            rows = await connection.fetch(statement, *values, timeout=time_limit)
        except DRIVER_ERRORS as error:
            self._return_after_error(connection, error)
            if not is_retryable(error, repeatable=repeatable):
                raise translate(error, self.address) from error
        except BaseException:
            self.pool.drop(connection)
            raise
        else:
            self.pool.give_back(connection)
            return rows
        time_limit -= asyncio.get_running_loop().time() - began
        return await self._fetch(statement, values, repeatable=repeatable, time_limit=time_limit)

    async def _fetch(
        self, statement: str, values: tuple[Any, ...], *, repeatable: bool, time_limit: float
    ) -> list[Record]:
        async def on(connection: ServerConnection) -> list[Record]:
            return await connection.fetch(statement, *values)

        return await self._until_done(on, repeatable=repeatable, time_limit=time_limit)

    async def run(
        self,
        work: Callable[[PostgresTransaction], Awaitable[T]],
        *,
        repeatable: bool = True,
        time_limit: float = VERB_TIMEOUT_SECONDS,
    ) -> T:
        """Runs `work` in one transaction and returns its answer. A retry calls `work` again, so `work` must
        keep no state. `repeatable=True`: retry even if the commit may have succeeded. `time_limit`: seconds
        for all tries together."""

        async def on(connection: ServerConnection) -> T:
            async with self.transaction_on(connection) as transaction:
                answer = await work(transaction)
            self.wakeups.announce(transaction.topics, transaction.ended)
            return answer

        return await self._until_done(on, repeatable=repeatable, time_limit=time_limit)

    async def execute_alone(self, command: str, *, time_limit: float) -> None:
        """Runs a command that is not allowed inside a transaction, such as VACUUM. `time_limit` is in
        seconds."""

        async def on(connection: ServerConnection) -> None:
            await connection.execute(command, timeout=time_limit)

        await self._until_done(on, repeatable=True, time_limit=time_limit)

    @asynccontextmanager
    async def transaction(
        self, *, time_limit: float = VERB_TIMEOUT_SECONDS
    ) -> AsyncIterator[PostgresTransaction]:
        """Yields one transaction and commits it after the block. Never retries, for work that cannot be
        repeated. `time_limit` is in seconds."""
        try:
            async with (
                asyncio.timeout(time_limit),
                self._borrow() as connection,
                self.transaction_on(connection) as transaction,
            ):
                yield transaction
            self.wakeups.announce(transaction.topics, transaction.ended)
        except TimeoutError as error:
            raise timeout_error(None, self.address) from error
        except DRIVER_ERRORS as error:
            raise translate(error, self.address) from error

    def transaction_on(
        self, connection: ServerConnection, pool: ConnectionPool | None = None
    ) -> PostgresTransaction:
        """Returns a transaction that has not begun yet, on a connection that the caller took from `pool`.
        `pool=None` means the connection pool of this object."""
        return PostgresTransaction(connection, self.clock, self.qualify, (pool or self.pool).begin)

    def qualify(self, sql: str) -> str:
        """Returns the statement with the name of this store's schema."""
        statement = self._qualified.get(sql)
        if statement is None:
            statement = self._qualified[sql] = statements.qualify(sql, self.address.schema)
        return statement

    async def _until_done(
        self, on: Callable[[ServerConnection], Awaitable[T]], *, repeatable: bool, time_limit: float
    ) -> T:
        self._check_open()
        last: Exception | None = None
        pause = _FIRST_PAUSE_SECONDS
        try:
            async with asyncio.timeout(time_limit):
                if self.wakeups.is_registering:
                    await self.wakeups.registered()
                while True:
                    try:
                        async with self._borrow() as connection:
                            return await on(connection)
                    except DRIVER_ERRORS as error:
                        if not is_retryable(error, repeatable=repeatable):
                            raise translate(error, self.address) from error
                        last = error
                    await asyncio.sleep(pause * (0.5 + self._jitter()))
                    pause = min(2 * pause, _MAX_PAUSE_SECONDS)
        except TimeoutError as error:
            raise timeout_error(last, self.address) from (last or error)

    @asynccontextmanager
    async def _borrow(self) -> AsyncIterator[ServerConnection]:
        """Yields a connection of the connection pool. Afterwards the connection goes back, or is closed if an
        error left it in an unknown state."""
        connection = await self.pool.take()
        try:
            yield connection
        except BaseException as error:
            self._return_after_error(connection, error)
            raise
        else:
            self.pool.give_back(connection)

    def _return_after_error(self, connection: ServerConnection, error: BaseException) -> None:
        """Gives the connection back to the connection pool if it is still usable, else closes it."""
        refused = isinstance(error, asyncpg.PostgresError)
        # If the server refuses all writes, reconnect: after a failover the host name may lead to another one.
        if refused and not isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            self.pool.give_back(connection)
        else:
            self.pool.drop(connection)

    def _check_open(self) -> None:
        self.check_fork()
        if not self._open:
            raise StoreUnavailable(f"{self.address}: the store is closed; open it first")


def is_retryable(error: BaseException, *, repeatable: bool) -> bool:
    kind = classify_error(error)
    if kind is FailureKind.LOST:
        return repeatable or not getattr(error, "committing", True)
    return kind is FailureKind.ROLLED_BACK
