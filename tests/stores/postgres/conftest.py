"""Connections to the database of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tidemill.clock import Clock
from tidemill.stores.postgres.address import PostgresAddress
from tidemill.stores.postgres.connection import PostgresConnection

Connect = Callable[..., Awaitable[PostgresConnection]]


@pytest.fixture
async def connect(postgres_url: str) -> AsyncIterator[Connect]:
    """Opens connections, and closes them when the test is over."""
    opened: list[PostgresConnection] = []

    async def connect(
        url: str = postgres_url, *, schema: str | None = None, clock: Clock | None = None
    ) -> PostgresConnection:
        connection = PostgresConnection(PostgresAddress.parse(url, schema), clock)
        opened.append(connection)
        await connection.open()
        return connection

    yield connect
    for connection in opened:
        await connection.close()


@pytest.fixture
async def connection(connect: Connect) -> PostgresConnection:
    return await connect()
