"""Looking after the database (U1 to U4, U8)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests.stores.postgres.conftest import Connect
from tidemill.core.checkpoints import Step, Try
from tidemill.core.claims import ClaimRequest, Share
from tidemill.core.job import Group, NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import PoolSettings
from tidemill.errors import ConfigurationError
from tidemill.stores.postgres import PostgresStore, migrations, tending, upkeep
from tidemill.stores.postgres.connection import Connection
from tidemill.stores.postgres.tending import Tending

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres

ADD = """
    INSERT INTO tidemill.arrivals (id, task, payload) SELECT 'j', 't', '{}' FROM generate_series(1, $1::int)
"""


async def test_u1_facts(connection: Connection, postgres_server: Postgres) -> None:
    """The server of the tests flushes nothing, which is worth a warning."""
    facts = await upkeep.describe(connection)
    assert facts.kind == "postgresql"
    assert facts.engine.startswith("PostgreSQL 1")
    assert facts.location == f"PostgreSQL at 127.0.0.1:{postgres_server.port}/tests, schema tidemill"
    assert facts.schema == migrations.newest()
    assert facts.bytes
    assert any(warning.startswith("fsync is off") for warning in facts.warnings)
    assert any(warning.startswith("synchronous_commit is off") for warning in facts.warnings)


async def test_u1_a_transaction_that_was_forgotten_is_named(
    connection: Connection, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LONG", 0.0)
    theirs = await asyncpg.connect(postgres_url, server_settings={"application_name": "report"})
    async with theirs.transaction(isolation="repeatable_read"):
        await theirs.fetch("SELECT 1")
        warnings = (await upkeep.describe(connection)).warnings
        assert any(f"process {theirs.get_server_pid()} (report) is open" in line for line in warnings)
    await theirs.close()


async def test_u2_a_new_store_is_whole(connection: Connection) -> None:
    assert await upkeep.check(connection) == ()


async def test_u3_a_backup_is_pg_dumps_work(connection: Connection) -> None:
    error = upkeep.refuse_backup(connection, Path("jobs.dump"))
    assert isinstance(error, ConfigurationError)
    assert "pg_dump --format=custom --schema=tidemill --file=jobs.dump" in str(error)


async def test_u4_compacting_gives_space_back(connection: Connection) -> None:
    await connection.fetch(ADD, 20_000)
    await connection.fetch("DELETE FROM tidemill.arrivals WHERE seq % 100 > 0")
    before = (await upkeep.describe(connection)).bytes
    await upkeep.compact(connection)
    after = (await upkeep.describe(connection)).bytes
    assert before is not None
    assert after is not None
    assert after < before / 2


async def dead_rows(connection: Connection) -> int:
    await connection.fetch("SELECT pg_stat_force_next_flush()")
    rows = await connection.fetch("SELECT n_dead_tup FROM pg_stat_all_tables WHERE relname = 'arrivals'")
    return int(rows[0][0])


async def test_u8_dead_rows_are_removed_where_they_are_worth_it(connect: Connect, postgres_url: str) -> None:
    connection = await connect(postgres_url + "?connections=1")
    tends = Tending(connection)
    await connection.fetch(ADD, 500)
    await connection.fetch("DELETE FROM tidemill.arrivals")
    assert not await tends.tend()
    assert await dead_rows(connection) == 500
    await connection.fetch(ADD, 5000)
    await connection.fetch("DELETE FROM tidemill.arrivals")
    assert await dead_rows(connection) == 5500
    assert not await tends.tend()
    assert not await dead_rows(connection)


async def test_u8_what_an_open_transaction_still_needs_is_not_tried_again_and_again(
    connect: Connect, postgres_url: str
) -> None:
    connection = await connect(postgres_url + "?connections=1")
    tends = Tending(connection)
    await connection.fetch(ADD, 5000)
    theirs = await asyncpg.connect(postgres_url)
    async with theirs.transaction(isolation="repeatable_read"):
        await theirs.fetch("SELECT 1")
        await connection.fetch("DELETE FROM tidemill.arrivals")
        assert await dead_rows(connection) == 5000
        await tends.tend()
        assert await dead_rows(connection) == 5000
    await theirs.close()
    await tends.tend()
    assert await dead_rows(connection) == 5000
    tends._rests = {name: at - tending.IN_VAIN for name, at in tends._rests.items()}
    await tends.tend()
    assert not await dead_rows(connection)


async def test_u8_rows_that_die_during_a_vacuum_do_not_make_it_one_in_vain(
    connect: Connect, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a thousand jobs a second they always do: a table that rested for a minute grew by 14 MB."""
    connection = await connect(postgres_url + "?connections=1")
    tends = Tending(connection)
    vacuum = connection.execute_alone

    async def vacuum_under_load(command: str, *, patience: float) -> None:
        await vacuum(command, patience=patience)
        await connection.fetch(ADD, 1500)
        await connection.fetch("DELETE FROM tidemill.arrivals")
        assert await dead_rows(connection) == 1500

    monkeypatch.setattr(connection, "execute_alone", vacuum_under_load)
    await connection.fetch(ADD, 5000)
    await connection.fetch("DELETE FROM tidemill.arrivals")
    assert await dead_rows(connection) == 5000
    await tends.tend()
    assert tends._rests["arrivals"] < asyncio.get_running_loop().time() + tending.IN_VAIN / 2


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM tidemill.lanes WHERE lane <> ''", "has ready jobs with the key"),
        ("UPDATE tidemill.lanes SET seq = seq + 1 WHERE lane <> ''", "in their order"),
        ("DELETE FROM tidemill.ready", "job 'b' does not stand in line exactly when"),
        ("UPDATE tidemill.ready SET due = due + 1", "job 'b' does not stand in line exactly when"),
        ("DELETE FROM tidemill.claims", "job 'c' does not stand in line exactly when"),
        ("UPDATE tidemill.claims SET open = 2", "counts 2 jobs and has 1"),
        ("DELETE FROM tidemill.reservations", "pool 'site' counts 1 "),
        ("UPDATE tidemill.jobs SET fence = fence + 1 WHERE state = 'running'", "keeps units for job 'a'"),
        ("UPDATE tidemill.checkpoints SET job = 'gone'", "1 checkpoints are kept of 1 jobs that are gone"),
    ],
)
async def test_u2_damage_is_named(postgres_url: str, connection: Connection, damage: str, said: str) -> None:
    store = await PostgresStore(postgres_url).open()
    try:
        await _with_a_bit_of_everything(store)
        assert await store.check() == ()
        await connection.fetch(damage)
        found = await store.check()
        assert any(said in sentence for sentence in found), found
    finally:
        await store.close()


async def _with_a_bit_of_everything(store: PostgresStore) -> None:
    """One job runs, with units of a pool and a step that was paid for; another waits in a lane; a plain one
    is claimed."""
    await store.declare_pools({"site": PoolSettings(limits=(Limit.concurrent(10),))})
    metered = NewJob(id="a", task="t", payload=b"{}", needs=(Need("site", units={"requests": 1.0}),))
    keyed = NewJob(id="b", task="t", payload=b"{}", key="k")
    await store.insert([Group("q", (metered,)), Group("r", (keyed,))])
    request = ClaimRequest(worker="w", number=1, shares=(Share("q", 1),), limit=1, lease=60.0)
    (claimed,) = (await store.claim(request)).jobs
    await store.insert([Group("s", (NewJob(id="c", task="t", payload=b"{}"),))])
    await store.claim(ClaimRequest(worker="v", number=1, shares=(Share("s", 1),), limit=1, lease=60.0))
    await store.keep_step("a", Try(claimed.fence, claimed.claim, 1), Step("s", "{}"), b"1", paid=True)
