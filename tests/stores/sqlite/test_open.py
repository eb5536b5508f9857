"""Every problem with the file is reported in one clear sentence, and the file stays unchanged."""

import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from tests.chaos.small_disk import small_disk
from tests.stores.sqlite.conftest import group
from tidemill.errors import SchemaMismatch, StoreCorrupt, StoreError, StoreFull, StoreUnavailable
from tidemill.stores.sqlite import SqliteStore, writer
from tidemill.stores.sqlite.connection import BusyTimeout


async def opening(path: Path) -> StoreError:
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreError) as caught:
        await SqliteStore(path).open()
    assert (path.read_bytes() if path.is_file() else None) == before
    assert str(path) in str(caught.value)
    return caught.value


async def test_missing_folder_is_named(tmp_path: Path) -> None:
    error = await opening(tmp_path / "nowhere" / "jobs.db")
    assert isinstance(error, StoreUnavailable)
    assert "does not exist; create it" in str(error)


async def test_folder_instead_of_file(tmp_path: Path) -> None:
    assert "name a file in it" in str(await opening(tmp_path))


async def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_text("Dear diary, today I was not a database at all. " * 40)
    error = await opening(path)
    assert isinstance(error, StoreCorrupt)
    assert "not a SQLite database" in str(error)


async def test_another_programs_database_is_not_touched(path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE recipes (name TEXT)")
    other.close()
    error = await opening(path)
    assert isinstance(error, StoreCorrupt)
    assert "another program's database" in str(error)


async def test_a_fresh_file_that_another_process_prepares_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite calls no busy handler when it changes the journal mode."""
    path.touch()
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")

    def until_the_other_is_done(self: BusyTimeout, tries: int) -> bool:
        if other.in_transaction:
            other.execute("ROLLBACK")
            return True
        return False

    monkeypatch.setattr(BusyTimeout, "wait", until_the_other_is_done)
    await (await SqliteStore(path).open()).close()
    other.close()


async def test_a_fresh_file_that_stays_locked_is_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BUSY_TIMEOUT_SECONDS", 0.05)
    path.touch()
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another process held the database for too long"):
        await SqliteStore(path).open()
    other.close()


async def test_a_schema_created_concurrently_is_accepted(path: Path) -> None:
    created: list[None] = []

    def create_first(connection: apsw.Connection) -> None:
        def trace(_: object, sql: str, __: object) -> bool:
            if "sqlite_schema" in sql and not created:
                created.append(None)
                SqliteStore(path).blocking.insert([group("first")])
            return True

        connection.exec_trace = trace

    apsw.connection_hooks.append(create_first)
    try:
        store = await SqliteStore(path).open()
    finally:
        apsw.connection_hooks.remove(create_first)
    assert created
    assert (await store.counts())["default"] == {"ready": 1}
    await store.close()


async def test_newer_schema_says_upgrade(path: Path, store: SqliteStore) -> None:
    await store.insert([group("a")])
    await store.close()
    newer = apsw.Connection(str(path))
    newer.pragma("user_version", 9_999)
    newer.close()
    with pytest.raises(SchemaMismatch, match=r"version 9999.*upgrade tidemill"):
        await SqliteStore(path).open()
    newer = apsw.Connection(str(path))
    assert newer.execute("SELECT id FROM jobs").get == "a"
    newer.close()


async def test_damaged_file_is_reported(path: Path, store: SqliteStore) -> None:
    await store.insert([group(*(f"job-{n}" for n in range(2000)))])
    await store.close()
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(path.stat().st_size - 8192))
    damaged = SqliteStore(path)
    with pytest.raises(StoreCorrupt, match="damaged"):
        await damaged.insert([group("one more")])
    await damaged.close()


READ_ONLY = """
import os, sys
from tests.stores.sqlite.conftest import group
from tidemill.errors import StoreReadOnly, StoreUnavailable
from tidemill.stores.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
if os.getuid() == 0:
    os.setuid(65534)  # root may write anywhere; nobody may not
try:
    store.blocking.insert([group("b")])
except (StoreReadOnly, StoreUnavailable) as error:
    print(type(error).__name__, error)
"""


async def test_unwritable_file_says_what_to_permit(path: Path, store: SqliteStore) -> None:
    await store.insert([group("a")])
    await store.close()
    private = [folder for folder in path.parents if folder.stat().st_mode & 0o777 == 0o700]
    for folder in private:
        folder.chmod(0o755)  # lets the user nobody reach the file
    path.chmod(0o444)
    path.parent.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    path.chmod(0o644)
    path.parent.chmod(0o755)
    for folder in private:
        folder.chmod(0o700)
    assert "write" in done.stdout, done.stderr
    reopened = await SqliteStore(path).open()
    assert [job is not None for job in await reopened.get(["a", "b"])] == [True, False]
    await reopened.close()


async def test_closed_store_says_so(store: SqliteStore) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.insert([group("a")])


async def test_close_may_be_repeated(store: SqliteStore) -> None:
    await store.close()
    await store.close()


async def test_a_full_disk_is_reported_loses_nothing_and_recovers(tmp_path: Path) -> None:
    """Accepted jobs are there, refused ones are not, and work continues (I24, I1)."""
    with small_disk(tmp_path / "small", megabytes=2) as folder:
        await _fill_and_heal(folder)


async def _fill_and_heal(folder: Path) -> None:
    store = await SqliteStore(folder / "jobs.db").open()
    ballast = folder / "ballast"
    ballast.write_bytes(b"x" * 700_000)
    accepted = []
    with pytest.raises(StoreFull, match="no space left"):
        for number in range(10_000):
            await store.insert([group(f"job-{number}", payload=b'"' + b"x" * 2000 + b'"')])
            accepted.append(f"job-{number}")
    assert accepted
    with pytest.raises(StoreFull):
        await store.insert([group(*(f"more-{n}" for n in range(200)), payload=b'"' + b"x" * 2000 + b'"')])
    ballast.unlink()
    await store.insert([group("after")])
    found = await store.get([*accepted, f"job-{len(accepted)}", "more-0", "after"])
    assert all(job is not None for job in found[: len(accepted)])
    assert [job is not None for job in found[len(accepted) :]] == [False, False, True]
    assert (await store.counts())["default"] == {"ready": len(accepted) + 1}
    await store.close()
