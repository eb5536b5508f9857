"""Facts, checks, compacting and vacuums of the database (U1 to U4, U8)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests.stores.postgres.conftest import Connect
from tidemill.core.checkpoints import StepAttempt, StepKey
from tidemill.core.claims import ClaimRequest, QueueShare
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import PoolSettings
from tidemill.errors import ConfigurationError
from tidemill.stores.postgres import PostgresStore, administration, migrations
from tidemill.stores.postgres.administration import TableVacuum
from tidemill.stores.postgres.connection import PostgresConnection

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres


ADD = """
    INSERT INTO tidemill.arrivals (id, task, payload) SELECT 'j', 't', '{}' FROM generate_series(1, $1::int)
"""


async def test_u1_facts(connection: PostgresConnection, postgres_server: Postgres) -> None:
    """The test server has fsync off, which is reported."""
    facts = await administration.describe(connection)
    assert facts.kind == "postgresql"
    assert facts.engine.startswith("PostgreSQL 1")
    assert facts.location == f"PostgreSQL at 127.0.0.1:{postgres_server.port}/tests, schema tidemill"
    assert facts.schema == migrations.newest_version()
    assert facts.bytes
    assert any(warning.startswith("fsync is off") for warning in facts.warnings)
    assert any(warning.startswith("synchronous_commit is off") for warning in facts.warnings)


async def test_u1_a_long_transaction_is_reported(
    connection: PostgresConnection, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(administration, "LONG_TRANSACTION_SECONDS", 0.0)
    other_client = await asyncpg.connect(postgres_url, server_settings={"application_name": "report"})
    async with other_client.transaction(isolation="repeatable_read"):
        await other_client.fetch("SELECT 1")
        warnings = (await administration.describe(connection)).warnings
        assert any(f"process {other_client.get_server_pid()} (report) is open" in line for line in warnings)
    await other_client.close()


async def test_u2_a_new_store_has_no_damage(connection: PostgresConnection) -> None:
    assert await administration.check(connection) == ()


async def test_u3_a_backup_is_refused_in_favour_of_pg_dump(connection: PostgresConnection) -> None:
    error = administration.refuse_backup(connection, Path("jobs.dump"))
    assert isinstance(error, ConfigurationError)
    assert "pg_dump --format=custom --schema=tidemill --file=jobs.dump" in str(error)


async def test_u4_compacting_frees_disk_space(connection: PostgresConnection) -> None:
    await connection.fetch(ADD, 20_000)
    await connection.fetch("DELETE FROM tidemill.arrivals WHERE seq % 100 > 0")
    before = (await administration.describe(connection)).bytes
    await administration.compact(connection)
    after = (await administration.describe(connection)).bytes
    assert before is not None
    assert after is not None
    assert after < before / 2


async def dead_rows(connection: PostgresConnection) -> int:
    await connection.fetch("SELECT pg_stat_force_next_flush()")
    rows = await connection.fetch("SELECT n_dead_tup FROM pg_stat_all_tables WHERE relname = 'arrivals'")
    return int(rows[0][0])


async def test_u8_tables_with_many_dead_rows_are_vacuumed(connect: Connect, postgres_url: str) -> None:
    connection = await connect(postgres_url + "?connections=1")
    tends = TableVacuum(connection)
    await connection.fetch(ADD, 500)
    await connection.fetch("DELETE FROM tidemill.arrivals")
    assert not await tends.run_maintenance()
    assert await dead_rows(connection) == 500
    await connection.fetch(ADD, 5000)
    await connection.fetch("DELETE FROM tidemill.arrivals")
    assert await dead_rows(connection) == 5500
    assert not await tends.run_maintenance()
    assert not await dead_rows(connection)


async def test_u8_a_useless_vacuum_is_not_repeated_at_once(connect: Connect, postgres_url: str) -> None:
    connection = await connect(postgres_url + "?connections=1")
    tends = TableVacuum(connection)
    await connection.fetch(ADD, 5000)
    other_client = await asyncpg.connect(postgres_url)
    async with other_client.transaction(isolation="repeatable_read"):
        await other_client.fetch("SELECT 1")
        await connection.fetch("DELETE FROM tidemill.arrivals")
        assert await dead_rows(connection) == 5000
        await tends.run_maintenance()
        assert await dead_rows(connection) == 5000
    await other_client.close()
    await tends.run_maintenance()
    assert await dead_rows(connection) == 5000
    tends._rest_until = {
        name: at - administration.USELESS_VACUUM_PAUSE_SECONDS for name, at in tends._rest_until.items()
    }
    await tends.run_maintenance()
    assert not await dead_rows(connection)


async def test_u8_rows_that_die_during_a_vacuum_do_not_make_it_useless(
    connect: Connect, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a thousand jobs a second some always do: a table that rested for a minute grew by 14 MB."""
    connection = await connect(postgres_url + "?connections=1")
    tends = TableVacuum(connection)
    vacuum = connection.execute_alone

    async def vacuum_under_load(command: str, *, time_limit: float) -> None:
        await vacuum(command, time_limit=time_limit)
        await connection.fetch(ADD, 1500)
        await connection.fetch("DELETE FROM tidemill.arrivals")
        assert await dead_rows(connection) == 1500

    monkeypatch.setattr(connection, "execute_alone", vacuum_under_load)
    await connection.fetch(ADD, 5000)
    await connection.fetch("DELETE FROM tidemill.arrivals")
    assert await dead_rows(connection) == 5000
    await tends.run_maintenance()
    assert (
        tends._rest_until["arrivals"]
        < asyncio.get_running_loop().time() + administration.USELESS_VACUUM_PAUSE_SECONDS / 2
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM tidemill.lanes WHERE lane <> ''", "has ready jobs with the key"),
        ("UPDATE tidemill.lanes SET seq = seq + 1 WHERE lane <> ''", "in their order"),
        ("DELETE FROM tidemill.ready", "job 'b' is not in the table ready exactly when"),
        ("UPDATE tidemill.ready SET due = due + 1", "job 'b' is not in the table ready exactly when"),
        ("DELETE FROM tidemill.claims", "job 'c' is not in the table ready exactly when"),
        ("UPDATE tidemill.claims SET open_jobs = 2", "counts 2 jobs and has 1"),
        ("DELETE FROM tidemill.reservations", "pool 'site' counts 1 "),
        ("UPDATE tidemill.jobs SET fence = fence + 1 WHERE state = 'running'", "keeps units for job 'a'"),
        ("UPDATE tidemill.checkpoints SET job = 'gone'", "1 checkpoints are kept of 1 jobs that are gone"),
    ],
)
async def test_u2_damage_is_reported(
    postgres_url: str, connection: PostgresConnection, damage: str, message: str
) -> None:
    store = await PostgresStore(postgres_url).open()
    try:
        await _with_a_bit_of_everything(store)
        assert await store.check() == ()
        await connection.fetch(damage)
        found = await store.check()
        assert any(message in sentence for sentence in found), found
    finally:
        await store.close()


async def _with_a_bit_of_everything(store: PostgresStore) -> None:
    """One job runs with units of a pool and a paid step, another waits in a lane, and a plain one is
    claimed."""
    await store.declare_pools({"site": PoolSettings(limits=(Limit.concurrent(10),))})
    metered = NewJob(id="a", task="t", payload=b"{}", needs=(Need("site", units={"requests": 1.0}),))
    keyed = NewJob(id="b", task="t", payload=b"{}", key="k")
    await store.insert([JobGroup("q", (metered,)), JobGroup("r", (keyed,))])
    request = ClaimRequest(worker="w", number=1, shares=(QueueShare("q", 1),), limit=1, lease=60.0)
    (claimed,) = (await store.claim(request)).jobs
    await store.insert([JobGroup("s", (NewJob(id="c", task="t", payload=b"{}"),))])
    await store.claim(ClaimRequest(worker="v", number=1, shares=(QueueShare("s", 1),), limit=1, lease=60.0))
    await store.keep_step(
        "a", StepAttempt(claimed.fence, claimed.claim, 1), StepKey("s", "{}"), b"1", paid=True
    )
