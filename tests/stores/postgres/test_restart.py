"""A server that is killed and comes back: what was committed is there, and nobody has to be restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.servers.postgres import Postgres
from tidemill.contract.wakeups import queue_topic
from tidemill.errors import StoreUnavailable
from tidemill.stores.postgres.address import Address
from tidemill.stores.postgres.connection import Connection

Q = queue_topic("q")


@pytest.fixture
def server() -> Iterator[Postgres]:
    with Postgres(durable=True) as server:
        yield server


async def test_a_killed_server_is_found_again(server: Postgres) -> None:
    """Verbs wait for it as long as their time allows, then say so; whoever was parked is woken, because the
    list of the parked went with the server."""
    connection = Connection(Address.parse(server.url), None)
    await connection.open()
    await connection.fetch("CREATE TABLE public.noted (n int)")
    await connection.fetch("INSERT INTO public.noted VALUES (1)")
    listener = connection.wakeups.listen([Q])
    listener.arm()
    await connection.wakeups.parked()
    await asyncio.to_thread(server.kill)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await connection.fetch("SELECT n FROM public.noted", patience=0.3)
    waiting = asyncio.create_task(connection.fetch("SELECT n FROM public.noted", patience=30))
    await asyncio.to_thread(server.start)
    assert [row["n"] for row in await waiting] == [1]
    assert await listener.wait(30)
    listener.arm()
    await connection.wakeups.parked()
    connection.announce([Q])
    assert await listener.wait(30)
    listener.close()
    await connection.close()
