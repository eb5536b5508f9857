"""Migrations of the schema, shown with a second migration that exists only in these tests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from tests.stores.sqlite.conftest import group
from tidemill.errors import SchemaMismatch, StoreError
from tidemill.stores.sqlite import SqliteStore, migrations, statements

RELEASED = statements.load_migrations()
NEWEST = RELEASED[-1][0]


def add_migration(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    changed = [*RELEASED, (NEWEST + 1, script)]
    monkeypatch.setattr(migrations, "load_migrations", lambda: changed)


def schema_version(path: Path) -> int:
    connection = apsw.Connection(str(path))
    try:
        return int(connection.pragma("user_version"))
    finally:
        connection.close()


async def test_jobs_survive_a_migration(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.insert([group("a", "b")])
    await store.close()
    add_migration(monkeypatch, "ALTER TABLE workers ADD COLUMN test_only TEXT;")
    migrated = await SqliteStore(path).open()
    try:
        assert (await migrated.counts())["default"] == {"ready": 2}
        assert await migrated.check() == ()
    finally:
        await migrated.close()
    assert schema_version(path) == NEWEST + 1


async def test_a_migration_runs_once_if_many_handles_open_the_file(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.close()
    add_migration(monkeypatch, "CREATE TABLE test_only (id TEXT);")
    handles = await asyncio.gather(*(SqliteStore(path).open() for _ in range(8)))
    for handle in handles:
        await handle.close()
    assert schema_version(path) == NEWEST + 1


async def test_a_failed_migration_leaves_the_old_version(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.insert([group("a")])
    await store.close()
    with monkeypatch.context() as patched:
        add_migration(patched, "CREATE TABLE test_only (id TEXT); SELECT no_such_function();")
        with pytest.raises(StoreError, match="no_such_function"):
            await SqliteStore(path).open()
    assert schema_version(path) == NEWEST
    again = await SqliteStore(path).open()
    try:
        assert (await again.counts())["default"] == {"ready": 1}
    finally:
        await again.close()


async def test_old_code_refuses_a_migrated_file(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.close()
    with monkeypatch.context() as patched:
        add_migration(patched, "CREATE TABLE test_only (id TEXT);")
        await (await SqliteStore(path).open()).close()
    with pytest.raises(SchemaMismatch, match=rf"version {NEWEST + 1}.*knows up to {NEWEST};"):
        await SqliteStore(path).open()


def test_the_schema_is_one_version() -> None:
    assert [version for version, _ in RELEASED] == [1]
