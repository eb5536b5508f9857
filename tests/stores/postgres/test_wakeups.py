"""Wake-ups by NOTIFY (W1 to W4, I23)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.servers.proxy import Proxy
from tests.stores.postgres.conftest import Connect
from tidemill.contract.wakeups import job_topic, queue_topic
from tidemill.stores.postgres import ear
from tidemill.stores.postgres.connection import Connection
from tidemill.stores.postgres.listener import PostgresListener

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres

AT_MOST, QUIET = 5.0, 0.05
Q = queue_topic("q")


@asynccontextmanager
async def armed(connection: Connection, *topics: str) -> AsyncIterator[PostgresListener]:
    """One that the server knows."""
    listener = connection.wakeups.listen(topics)
    listener.arm()
    await connection.wakeups.parked()
    yield listener
    listener.close()


async def parked(connection: Connection) -> int:
    return int((await connection.fetch("SELECT count(*) FROM tidemill.parked"))[0][0])


async def test_w3_a_ring_reaches_another_process(connect: Connect) -> None:
    """Two connections that share nothing but the database; of two listeners a ring wakes one."""
    here, there = await connect(), await _strangers(connect)
    async with armed(there, Q) as first, armed(there, Q) as second:
        here.announce([Q])
        done, waiting = await asyncio.wait(
            [asyncio.create_task(one.wait(AT_MOST)) for one in (first, second)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert [task.result() for task in done] == [True]
        here.announce([Q])
        assert await waiting.pop()


async def test_w4_the_end_of_a_job_is_told_to_everybody(connect: Connect) -> None:
    here, there = await connect(), await _strangers(connect)
    topic = job_topic("a")
    async with armed(there, topic) as first, armed(there, topic) as second:
        here.announce([], ["b", "a"])
        assert all(await asyncio.gather(first.wait(AT_MOST), second.wait(AT_MOST)))


async def test_w2_nobody_is_parked_who_does_not_wait(connection: Connection) -> None:
    async with armed(connection, Q, job_topic("a")) as listener:
        assert await parked(connection) == 2
        listener.arm()
        assert await parked(connection) == 2
        connection.announce([Q])
        assert await listener.wait(AT_MOST)
    async with armed(connection, Q):
        assert await parked(connection) == 1


async def test_w1_a_look_after_arming_waits_until_the_server_knows(connect: Connect) -> None:
    """Else a job that is inserted between the look and the parking would wake nobody."""
    connection = await connect()
    listener = connection.wakeups.listen([Q])
    listener.arm()
    assert await parked(connection) == 1
    listener.close()


async def test_i23_a_lost_connection_is_opened_again_and_rings_as_a_precaution(
    connect: Connect, postgres_server: Postgres
) -> None:
    here, there = await connect(), await _strangers(connect)
    async with armed(there, Q) as listener:
        with postgres_server.client() as client:
            client.execute("SELECT pg_terminate_backend(pid) FROM tidemill.parked")
        assert await listener.wait(AT_MOST)
        listener.arm()
        await there.wakeups.parked()
        here.announce([Q])
        assert await listener.wait(AT_MOST)


async def test_i23_a_connection_that_the_network_has_forgotten_is_noticed(
    connect: Connect, postgres_server: Postgres, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ear, "SILENCE", 0.1)
    monkeypatch.setattr(ear, "ANSWER", 0.1)
    async with Proxy(postgres_server.port) as proxy:
        there = await connect(postgres_url.replace(str(postgres_server.port), str(proxy.port)))
        async with armed(there, Q) as listener:
            proxy.forget()
            assert await listener.wait(AT_MOST)
        await there.close()


async def test_a_ring_for_somebody_who_is_busy_by_now_goes_on_to_the_next(connect: Connect) -> None:
    here, there = await connect(), await _strangers(connect)
    async with armed(there, Q) as busy, armed(there, Q) as idle:
        there.wakeups._heard(busy.arming, Q)
        assert busy.rung
        there.wakeups._heard(busy.arming, Q)
        assert await idle.wait(AT_MOST)
    assert not await parked(here)


async def _strangers(connect: Connect) -> Connection:
    """As in another process: neither knows who of the other's waits."""
    connection = await connect()
    connection.wakeups._kin = type(connection.wakeups._kin)()
    return connection
