"""One transaction on a server connection."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import asyncpg

from tidemill.contract.jobs import ClockReading
from tidemill.stores.postgres.clock import PostgresClock
from tidemill.stores.postgres.connection_pool import ServerConnection
from tidemill.stores.postgres.errors import DRIVER_ERRORS
from tidemill.stores.postgres.statements import load_statements

SQL = load_statements("clock")


class PostgresTransaction:
    """A READ COMMITTED transaction on one server connection. Lock the rows on which a decision depends when
    you read them. `begin`: the SQL statement that begins the transaction. `qualify`: puts the schema name
    into a statement."""

    def __init__(
        self, connection: ServerConnection, clock: PostgresClock, qualify: Callable[[str], str], begin: str
    ) -> None:
        self.connection = connection
        self.clock = clock
        self.topics: set[str] = set()
        """Topics to wake after the commit."""
        self.ended: list[str] = []
        """Ids of jobs that end with this transaction."""
        self.decided = 0.0
        """When the transaction had its turn, or earlier, by this process's clock."""
        self._qualify, self._begin = qualify, begin
        self._reading: ClockReading | None = None

    async def fetch(self, sql: str, *values: Any) -> list[asyncpg.Record]:
        return await self.connection.fetch(self._qualify(sql), *values)

    async def first(self, sql: str, *values: Any) -> asyncpg.Record | None:
        """Returns the first row of the result; None if there is no row."""
        return await self.connection.fetchrow(self._qualify(sql), *values)

    async def value(self, sql: str, *values: Any) -> Any:
        """Returns the first column of the first row; None if there is no row."""
        return await self.connection.fetchval(self._qualify(sql), *values)

    async def time(self) -> ClockReading:
        """Returns the store's clocks. The first call reads them; later calls in this transaction return the
        same reading."""
        if self._reading is None:
            self._reading = self.clock.injected_reading() or self.clock.update(*await self._read_clock())
        return self._reading

    async def _read_clock(self) -> tuple[float, float, int]:
        row = await self.first(SQL.read_clock, *self.clock.arguments())
        assert row is not None  # noqa: S101 - a function call has one row
        return row["wall"], row["boot"], row["epoch"]

    async def __aenter__(self) -> Self:
        try:
            await self.connection.execute(self._begin)
        except DRIVER_ERRORS as error:
            raise _before_commit(error) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.connection.execute("COMMIT")
            return
        _before_commit(error)
        if isinstance(error, Exception) and not self.connection.is_closed():
            await self._roll_back()

    async def _roll_back(self) -> None:
        try:
            await self.connection.execute("ROLLBACK")
        except DRIVER_ERRORS:
            self.connection.terminate()  # the server ends the transaction when it notices


def _before_commit(error: BaseException) -> BaseException:
    """Marks on the error that it happened before the commit, and returns the error. The caller may repeat the
    transaction."""
    error.committing = False  # type: ignore[attr-defined]
    return error
