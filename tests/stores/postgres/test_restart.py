"""A server is killed and restarted: committed jobs are there, and no process has to be restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.servers.postgres import Postgres
from tidemill.contract.coordination import queue_topic
from tidemill.errors import StoreUnavailable
from tidemill.stores.postgres.address import PostgresAddress
from tidemill.stores.postgres.connection import PostgresConnection

Q = queue_topic("q")


@pytest.fixture
def server() -> Iterator[Postgres]:
    with Postgres(durable=True) as server:
        yield server


async def test_a_restarted_server_is_used_again(server: Postgres) -> None:
    """Verbs wait within their time limit, then raise. Waiting listeners are woken, because the unlogged
    table of listeners is lost."""
    connection = PostgresConnection(PostgresAddress.parse(server.url), None)
    await connection.open()
    await connection.fetch("CREATE TABLE public.noted (n int)")
    await connection.fetch("INSERT INTO public.noted VALUES (1)")
    listener = connection.wakeups.listen([Q])
    listener.arm()
    await connection.wakeups.registered()
    await asyncio.to_thread(server.kill)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await connection.fetch("SELECT n FROM public.noted", time_limit=0.3)
    waiting = asyncio.create_task(connection.fetch("SELECT n FROM public.noted", time_limit=30))
    await asyncio.to_thread(server.start)
    assert [row["n"] for row in await waiting] == [1]
    assert await listener.wait(30)
    listener.arm()
    await connection.wakeups.registered()
    connection.announce([Q])
    assert await listener.wait(30)
    listener.close()
    await connection.close()
