"""Behind a pooler that gives every transaction another session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from tests.servers.pooler import Pooler
from tests.stores.postgres.conftest import Connect
from tidemill.contract.wakeups import job_topic, queue_topic
from tidemill.stores.postgres import upkeep
from tidemill.stores.postgres.connection import Connection
from tidemill.stores.postgres.step import Step

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres

Q = queue_topic("q")


@pytest.fixture
async def pooled(connect: Connect, postgres_server: Postgres, postgres_url: str) -> AsyncIterator[Connection]:
    async with Pooler(postgres_server.port) as pooler:
        connection = await connect(pooler.url)
        yield connection
        await connection.close()


async def test_verbs_leave_nothing_in_a_session(pooled: Connection) -> None:
    assert pooled.links.pooled

    async def work(step: Step) -> int:
        await step.time()
        pids = {await step.value("SELECT pg_backend_pid()") for _ in range(3)}
        assert await step.value("SELECT current_setting('lock_timeout')") == "5s"
        return len(pids)

    async def verb(number: int) -> None:
        assert (await pooled.fetch("SELECT $1::int", number))[0][0] == number
        assert await pooled.run(work) == 1

    await asyncio.gather(*(verb(number) for number in range(40)))


async def test_i23_where_nothing_can_listen_this_process_rings_its_own(pooled: Connection) -> None:
    """Whoever waits elsewhere looks when its time is over, and the facts say so."""
    listener, other = pooled.wakeups.listen([Q]), pooled.wakeups.listen([job_topic("a")])
    listener.arm()
    other.arm()
    pooled.announce([Q], ["a"])
    assert await listener.wait(5)
    assert await other.wait(5)
    assert not await pooled.fetch("SELECT FROM tidemill.parked")
    facts = await upkeep.describe(pooled)
    assert any("no notification passes it" in warning for warning in facts.warnings)


async def test_a_server_without_one_is_told_apart(connection: Connection) -> None:
    assert not connection.links.pooled
    facts = await upkeep.describe(connection)
    assert not any("pooler" in warning for warning in facts.warnings)
