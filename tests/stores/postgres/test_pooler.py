"""A pooler that runs every transaction in another session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from tests.servers.pooler import Pooler
from tests.stores.postgres.conftest import Connect
from tidemill.contract.coordination import job_topic, queue_topic
from tidemill.stores.postgres import administration
from tidemill.stores.postgres.connection import PostgresConnection
from tidemill.stores.postgres.transaction import PostgresTransaction

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres


Q = queue_topic("q")


@pytest.fixture
async def pooled(
    connect: Connect, postgres_server: Postgres, postgres_url: str
) -> AsyncIterator[PostgresConnection]:
    async with Pooler(postgres_server.port) as pooler:
        connection = await connect(pooler.url)
        yield connection
        await connection.close()


async def test_verbs_leave_no_state_in_a_session(pooled: PostgresConnection) -> None:
    assert pooled.pool.pooled

    async def work(step: PostgresTransaction) -> int:
        await step.time()
        pids = {await step.value("SELECT pg_backend_pid()") for _ in range(3)}
        assert await step.value("SELECT current_setting('lock_timeout')") == "5s"
        return len(pids)

    async def verb(number: int) -> None:
        assert (await pooled.fetch("SELECT $1::int", number))[0][0] == number
        assert await pooled.run(work) == 1

    await asyncio.gather(*(verb(number) for number in range(40)))


async def test_i23_behind_a_pooler_a_process_wakes_its_own_listeners(pooled: PostgresConnection) -> None:
    """Other processes claim when their timeout ends, and the facts report it."""
    listener, other = pooled.wakeups.listen([Q]), pooled.wakeups.listen([job_topic("a")])
    listener.arm()
    other.arm()
    pooled.announce([Q], ["a"])
    assert await listener.wait(5)
    assert await other.wait(5)
    assert not await pooled.fetch("SELECT FROM tidemill.listeners")
    facts = await administration.describe(pooled)
    assert any("no notification passes it" in warning for warning in facts.warnings)


async def test_a_server_without_a_pooler_is_recognised(connection: PostgresConnection) -> None:
    assert not connection.pool.pooled
    facts = await administration.describe(connection)
    assert not any("pooler" in warning for warning in facts.warnings)
