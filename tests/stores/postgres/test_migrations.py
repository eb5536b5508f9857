"""Migrations of the schema, shown with a second migration that exists only in these tests."""

from __future__ import annotations

import asyncio

import pytest

from tests.stores.postgres.conftest import Connect
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.states import State
from tidemill.errors import SchemaMismatch, TidemillError
from tidemill.stores.postgres import PostgresStore, statements
from tidemill.stores.postgres.connection import PostgresConnection

RELEASED = statements.load_migrations()
NEWEST = RELEASED[-1][0]
JOBS = JobGroup("q", tuple(NewJob(id=name, task="noop", payload=b"{}") for name in ("a", "b")))


def add_migration(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    changed = [*RELEASED, (NEWEST + 1, script)]
    monkeypatch.setattr(statements, "load_migrations", lambda: changed)


async def versions(connection: PostgresConnection) -> list[int]:
    rows = await connection.fetch("SELECT version FROM tidemill.migrations ORDER BY version")
    return [row["version"] for row in rows]


async def test_jobs_survive_a_migration(
    connect: Connect, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await PostgresStore(postgres_url).open()
    await store.insert([JOBS])
    await store.close()
    add_migration(monkeypatch, "ALTER TABLE tidemill.workers ADD COLUMN test_only text;")
    await store.open()
    try:
        assert await store.counts() == {"q": {State.READY: 2}}
        assert await store.check() == ()
    finally:
        await store.close()
    assert await versions(await connect()) == [NEWEST, NEWEST + 1]


async def test_a_migration_runs_once_if_many_handles_open_the_schema(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    await connect()
    add_migration(monkeypatch, "CREATE TABLE tidemill.test_only (id text);")
    handles = await asyncio.gather(*(connect() for _ in range(8)))
    assert await versions(handles[0]) == [NEWEST, NEWEST + 1]


async def test_a_failed_migration_leaves_the_old_version(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await connect()
    with monkeypatch.context() as patched:
        add_migration(patched, "CREATE TABLE tidemill.test_only (id text); SELECT no_such_function();")
        with pytest.raises(TidemillError, match="no_such_function"):
            await connect()
    assert await versions(connection) == [NEWEST]
    assert not await connection.fetch("SELECT FROM pg_class WHERE relname = 'test_only'")
    await connect()


async def test_old_code_refuses_a_migrated_schema(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        add_migration(patched, "CREATE TABLE tidemill.test_only (id text);")
        await connect()
    with pytest.raises(SchemaMismatch, match=rf"has version {NEWEST + 1}, .* up to {NEWEST};"):
        await connect()


def test_the_schema_is_one_version() -> None:
    assert [version for version, _ in RELEASED] == [1]
