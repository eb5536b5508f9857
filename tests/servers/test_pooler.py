"""The pooler keeps no session state beyond a transaction, and all of it within one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import asyncpg
import pytest

from tests.servers.pooler import Pooler
from tests.servers.postgres import Postgres

WHO = "SELECT pg_backend_pid()"


@pytest.fixture
async def pooler(postgres_server: Postgres, postgres_url: str) -> AsyncIterator[Pooler]:
    async with Pooler(postgres_server.port) as pooler:
        yield pooler


async def test_every_transaction_runs_on_another_connection(pooler: Pooler) -> None:
    client = await asyncpg.connect(pooler.url, statement_cache_size=0)
    seen = [await client.fetchval(WHO) for _ in range(6)]
    assert len(set(seen)) == 3
    assert all(before != after for before, after in pairwise(seen))
    async with client.transaction():
        assert len({await client.fetchval(WHO) for _ in range(4)}) == 1
    await client.close()


async def test_a_prepared_statement_is_gone(pooler: Pooler) -> None:
    client = await asyncpg.connect(pooler.url)
    prepared = await client.prepare(WHO)
    with pytest.raises(asyncpg.PostgresError, match="prepared statement"):
        for _ in range(3):
            await prepared.fetchval()
    await client.close(timeout=1)


async def test_more_clients_than_connections_take_turns(pooler: Pooler) -> None:
    clients = [await asyncpg.connect(pooler.url, statement_cache_size=0) for _ in range(8)]
    await clients[0].execute("CREATE TABLE counted (id int)")

    async def count(client: asyncpg.Connection) -> None:
        for number in range(5):
            async with client.transaction():
                await client.execute("INSERT INTO counted VALUES ($1)", number)
        await client.copy_records_to_table("counted", records=[(9,)] * 100)

    await asyncio.gather(*map(count, clients))
    assert await clients[0].fetchval("SELECT count(*) FROM counted") == 8 * 105
    for client in clients:
        await client.close()


async def test_a_client_that_disconnects_in_a_transaction_is_rolled_back(pooler: Pooler) -> None:
    first = await asyncpg.connect(pooler.url, statement_cache_size=0)
    await first.execute("CREATE TABLE kept (id int)")
    await first.execute("BEGIN; INSERT INTO kept VALUES (1)")
    first.terminate()
    second = await asyncpg.connect(pooler.url, statement_cache_size=0)
    for _ in range(6):
        assert await second.fetchval("SELECT count(*) FROM kept") == 0
    await second.close()


async def test_an_unsupported_startup_parameter_is_refused(pooler: Pooler) -> None:
    with pytest.raises(asyncpg.PostgresError, match="unsupported startup parameter: jit"):
        await asyncpg.connect(pooler.url, server_settings={"jit": "off"})
