"""Wake-ups by NOTIFY (W1 to W4, I23)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.servers.proxy import Proxy
from tests.stores.postgres.conftest import Connect
from tidemill.contract.coordination import job_topic, queue_topic
from tidemill.stores.postgres import listen_connection
from tidemill.stores.postgres.connection import PostgresConnection
from tidemill.stores.postgres.wakeups import PostgresListener

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres


AT_MOST, QUIET = 5.0, 0.05
Q = queue_topic("q")


@asynccontextmanager
async def armed(connection: PostgresConnection, *topics: str) -> AsyncIterator[PostgresListener]:
    """Yields an armed listener that the server knows."""
    listener = connection.wakeups.listen(topics)
    listener.arm()
    await connection.wakeups.registered()
    yield listener
    listener.close()


async def listener_count(connection: PostgresConnection) -> int:
    return int((await connection.fetch("SELECT count(*) FROM tidemill.listeners"))[0][0])


async def test_w3_a_wakeup_reaches_another_process(connect: Connect) -> None:
    """Two connections that share only the database; of two listeners one is woken."""
    here, there = await connect(), await _other_process(connect)
    async with armed(there, Q) as first, armed(there, Q) as second:
        here.announce([Q])
        done, waiting = await asyncio.wait(
            [asyncio.create_task(one.wait(AT_MOST)) for one in (first, second)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert [task.result() for task in done] == [True]
        here.announce([Q])
        assert await waiting.pop()


async def test_w4_the_end_of_a_job_wakes_all_its_listeners(connect: Connect) -> None:
    here, there = await connect(), await _other_process(connect)
    topic = job_topic("a")
    async with armed(there, topic) as first, armed(there, topic) as second:
        here.announce([], ["b", "a"])
        assert all(await asyncio.gather(first.wait(AT_MOST), second.wait(AT_MOST)))


async def test_w2_only_waiting_listeners_have_a_row(connection: PostgresConnection) -> None:
    async with armed(connection, Q, job_topic("a")) as listener:
        assert await listener_count(connection) == 2
        listener.arm()
        assert await listener_count(connection) == 2
        connection.announce([Q])
        assert await listener.wait(AT_MOST)
    async with armed(connection, Q):
        assert await listener_count(connection) == 1


async def test_w1_a_claim_after_arming_waits_until_the_server_knows(connect: Connect) -> None:
    """Otherwise a job inserted between the claim and the registration would wake no listener."""
    connection = await connect()
    listener = connection.wakeups.listen([Q])
    listener.arm()
    assert await listener_count(connection) == 1
    listener.close()


async def test_i23_a_reopened_connection_wakes_all_listeners(
    connect: Connect, postgres_server: Postgres
) -> None:
    here, there = await connect(), await _other_process(connect)
    async with armed(there, Q) as listener:
        with postgres_server.client() as client:
            client.execute("SELECT pg_terminate_backend(pid) FROM tidemill.listeners")
        assert await listener.wait(AT_MOST)
        listener.arm()
        await there.wakeups.registered()
        here.announce([Q])
        assert await listener.wait(AT_MOST)


async def test_i23_a_dropped_connection_is_detected(
    connect: Connect, postgres_server: Postgres, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen_connection, "KEEPALIVE_SECONDS", 0.1)
    monkeypatch.setattr(listen_connection, "KEEPALIVE_TIMEOUT_SECONDS", 0.1)
    async with Proxy(postgres_server.port) as proxy:
        there = await connect(postgres_url.replace(str(postgres_server.port), str(proxy.port)))
        async with armed(there, Q) as listener:
            proxy.forget()
            assert await listener.wait(AT_MOST)
        await there.close()


async def test_a_wakeup_for_a_busy_worker_is_passed_on(connect: Connect) -> None:
    here, there = await connect(), await _other_process(connect)
    async with armed(there, Q) as busy, armed(there, Q) as idle:
        there.wakeups._notified(busy.wait_id, Q)
        assert busy.is_woken
        there.wakeups._notified(busy.wait_id, Q)
        assert await idle.wait(AT_MOST)
    assert not await listener_count(here)


async def _other_process(connect: Connect) -> PostgresConnection:
    """Returns a connection that acts like another process: neither knows the other's listeners."""
    connection = await connect()
    connection.wakeups._handles_of_process = type(connection.wakeups._handles_of_process)()
    return connection
