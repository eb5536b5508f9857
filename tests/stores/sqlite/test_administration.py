"""Facts, checks, backups and compacting of the file (U1 to U4)."""

import asyncio
import os
import stat
import sys
from pathlib import Path

import apsw
import pytest

from tests.chaos.small_disk import small_disk
from tests.stores.sqlite.conftest import group
from tidemill.core.checkpoints import StepAttempt, StepKey
from tidemill.core.claims import ClaimRequest, QueueShare
from tidemill.core.filters import Filter
from tidemill.core.operator_changes import DeleteJobs
from tidemill.errors import ConfigurationError, StoreFull
from tidemill.stores.sqlite import SqliteStore
from tidemill.stores.sqlite import file as sqlite_file

MOUNTS = r"""
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
22 21 0:21 / /srv/share rw,relatime shared:3 - nfs4 server:/share rw,vers=4.2
23 22 0:22 / /srv/share/fast rw,relatime - ext4 /dev/vdb rw
24 21 0:23 / /mnt/my\040disk rw,relatime - fuse.sshfs me@host: rw
25 21 0:24 / /home rw - 9p home rw
26 21 0:25 / /home rw - ext4 /dev/vdc rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/jobs.db", None),
        ("/srv/shared.db", None),
        ("/srv/share/jobs.db", "nfs4"),
        ("/srv/share/fast/jobs.db", None),
        ("/mnt/my disk/jobs.db", "fuse.sshfs"),
        ("/home/jobs.db", None),
    ],
)
def test_u1_a_network_file_system_is_recognised(path: str, kind: str | None) -> None:
    assert sqlite_file.network_file_system(Path(path), MOUNTS) == kind


def test_u1_no_warning_without_a_list_of_mounts() -> None:
    assert sqlite_file.network_file_system(Path("/srv/share/jobs.db"), "") is None


@pytest.mark.parametrize(
    ("version", "is_old"), [("3.40.1", True), ("3.51.2", True), ("3.51.3", False), ("3.54", False)]
)
def test_u1_a_sqlite_version_that_can_lose_rows_is_reported(version: str, is_old: bool) -> None:
    warning = sqlite_file.old_sqlite_warning(version)
    assert (warning is not None and version in warning and "install" in warning) == is_old


async def test_u1_facts(store: SqliteStore, path: Path) -> None:
    await store.insert([group(*map(str, range(2000)))])
    facts = await store.describe()
    assert (facts.kind, facts.location, facts.schema) == ("sqlite", str(path), 1)
    assert facts.engine == f"SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})"
    assert facts.bytes == sum(file.stat().st_size for file in (path, Path(f"{path}-wal")))
    assert (facts.free_bytes, facts.warnings) == (0, ())


async def test_u1_low_disk_space_is_reported(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", megabytes=4) as folder:
        store = await SqliteStore(folder / "jobs.db").open()
        (warning,) = (await store.describe()).warnings
        await store.close()
    assert "MB are left on the disk" in warning


def test_u1_another_journal_mode_is_reported(path: Path) -> None:
    assert list(sqlite_file.file_warnings(path, "wal", 0o600)) == []
    (warning,) = sqlite_file.file_warnings(path, "delete", 0o600)
    assert "journal mode delete" in warning


async def test_u2_miscounted_jobs_are_found(store: SqliteStore, path: Path) -> None:
    await store.insert([group("a", "b")])
    _sql(path, "UPDATE counters SET value = 7 WHERE name = 'ready'")
    assert await store.check() == ("queue 'default' counts 7 ready jobs but has 2",)
    _sql(path, "DELETE FROM counters WHERE name = 'ready'")
    assert await store.check() == ("queue 'default' counts 0 ready jobs but has 2",)


async def test_u2_missing_and_wrong_lanes_are_found(store: SqliteStore, path: Path) -> None:
    await store.insert([group("a", "b")])
    _sql(path, "UPDATE lanes SET seq = 2")
    (wrong,) = await store.check()
    assert "in their order" in wrong
    _sql(path, "DELETE FROM lanes")
    (lost,) = await store.check()
    assert "no worker would find" in lost


async def test_u2_checkpoints_of_deleted_jobs_are_found(store: SqliteStore, path: Path) -> None:
    await store.insert([group("a")])
    request = ClaimRequest(worker="w", number=1, shares=(QueueShare("default", 1),), limit=1, lease=60)
    [job] = (await store.claim(request)).jobs
    by = StepAttempt(job.fence, job.claim, 1)
    await store.begin_step("a", by, StepKey("ask", "1"))
    await store.keep_step("a", by, StepKey("ask", "2"), b"1", paid=True)
    assert await store.check() == ()
    _sql(path, "UPDATE checkpoints SET job = 99")
    assert await store.check() == ("2 checkpoints are kept of 1 jobs that are gone",)


async def test_u2_damage_to_the_file_is_found(store: SqliteStore, path: Path) -> None:
    await store.insert([group(*map(str, range(2000)))])
    await store.close()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 8192 * 4096)  # a page of the jobs, far from the small tables
        file.write(os.urandom(4096))
    damaged = SqliteStore(path)
    found = await damaged.check()
    await damaged.close()
    assert found
    assert all("damaged" in sentence for sentence in found)


async def test_u3_a_backup_is_a_snapshot(store: SqliteStore, tmp_path: Path) -> None:
    """Jobs arrive during the backup; it ends nevertheless and contains the jobs of its start."""
    await store.insert([group(*(f"before-{n}" for n in range(20_000)), payload=b'"%s"' % (b"x" * 500))])
    shares: list[float] = []
    came = 0

    def write_meanwhile(share: float) -> None:
        nonlocal came
        shares.append(share)
        store.blocking.insert([group(f"meanwhile-{came}")])
        came += 1

    target = tmp_path / "copies" / "copy.db"
    target.parent.mkdir()
    await store.backup(target, write_meanwhile)
    assert shares == sorted(shares)
    assert (len(shares) > 1, shares[-1]) == (True, 1.0)
    assert listing(target.parent) == [target]
    copy = await SqliteStore(target).open()
    assert await copy.counts() == {"default": {"ready": 20_000}}
    assert await copy.check() == ()
    assert (await copy.insert([group("new")]))[0][0].verdict == "accepted"
    await copy.close()
    assert (await store.counts())["default"] == {"ready": 20_000 + came}


async def test_u3_a_backup_contains_the_inbox(store: SqliteStore, tmp_path: Path) -> None:
    store.blocking.insert([group("first", "makes the queue known")])
    store.blocking.insert([group("alone")])
    await store.backup(tmp_path / "copy.db")
    copy = await SqliteStore(tmp_path / "copy.db").open()
    assert [job is not None for job in await copy.get(["first", "alone"])] == [True, True]
    await copy.close()


async def test_u3_bad_targets_get_one_sentence(store: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no backup can be written there: No such file"):
        await store.backup(tmp_path / "nowhere" / "copy.db")
    (tmp_path / "copy.db.part").touch()
    with pytest.raises(ConfigurationError, match="another backup"):
        await store.backup(tmp_path / "copy.db")
    assert (tmp_path / "copy.db.part").exists()
    with pytest.raises(ConfigurationError, match="there is such a file"):
        await store.backup(store.path)


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
async def test_u3_files_of_another_database_are_not_used_for_the_backup(
    store: SqliteStore, tmp_path: Path, ending: str
) -> None:
    """SQLite would apply a write-ahead log beside the backup, and the backup would open as another store."""
    folder = tmp_path / "copies"
    folder.mkdir()
    left = folder / f"copy.db{ending}"
    left.write_text("of another")
    with pytest.raises(ConfigurationError, match=f"copy.db{ending}: this was left"):
        await store.backup(folder / "copy.db")
    left.unlink()
    with pytest.raises(ConfigurationError, match="this was left"):
        await store.backup(folder / "copy.db", lambda _: left.touch())
    assert listing(folder) == [left]


async def test_u3_a_backup_has_the_permissions_of_the_store(store: SqliteStore, tmp_path: Path) -> None:
    await store.insert([group("a")])
    for mode in (0o600, 0o640, 0o666):
        store.path.chmod(mode)
        copy = tmp_path / f"copy-{mode:o}.db"
        await store.backup(copy)
        assert _mode(copy) == mode


async def test_u3_a_file_size_limit_is_reported(path: Path, store: SqliteStore, tmp_path: Path) -> None:
    await store.insert([group(*map(str, range(20_000)))])
    copying = """
import asyncio, resource, signal, sys
from pathlib import Path
from tidemill.stores.sqlite import SqliteStore
async def main():
    store = await SqliteStore(sys.argv[1]).open()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    await store.backup(Path(sys.argv[2]))
asyncio.run(main())
"""
    folder = tmp_path / "copies"
    folder.mkdir()
    arguments = (sys.executable, "-c", copying, str(path), str(folder / "copy.db"))
    process = await asyncio.create_subprocess_exec(*arguments, stderr=asyncio.subprocess.PIPE)
    _, stderr = await process.communicate()
    assert b"StoreUnavailable" in stderr
    assert b"the limit on the size of files" in stderr
    assert listing(folder) == []


async def test_u3_a_full_disk_leaves_nothing_behind(store: SqliteStore, tmp_path: Path) -> None:
    await store.insert([group(*map(str, range(20_000)))])
    with small_disk(tmp_path / "small", megabytes=1) as folder:
        before = listing(folder)
        with pytest.raises(StoreFull):
            await store.backup(folder / "copy.db")
        assert listing(folder) == before
    assert await store.check() == ()


async def test_u3_a_listener_that_raises_leaves_nothing_behind(store: SqliteStore, tmp_path: Path) -> None:
    def stop(_: float) -> None:
        raise KeyboardInterrupt

    await store.insert([group(*map(str, range(100)))])
    folder = tmp_path / "copies"
    folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        await store.backup(folder / "copy.db", stop)
    assert listing(folder) == []


async def test_u4_compacting_frees_disk_space(store: SqliteStore, path: Path) -> None:
    await store.insert([group(*map(str, range(20_000)))])
    await store.amend(Filter(), DeleteJobs(), 20_000)
    await store.insert([group("kept")])
    before = await store.describe()
    await asyncio.gather(store.compact(), store.insert([group("meanwhile")]))
    after = await store.describe()
    assert before.free_bytes is not None
    assert before.bytes is not None
    assert after.bytes is not None
    assert before.free_bytes > 1_000_000
    assert (after.free_bytes or 0) < 100_000
    assert after.bytes < before.bytes / 2
    assert (await store.counts())["default"] == {"ready": 2}


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def listing(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def _sql(path: Path, statement: str) -> None:
    """Changes the database as a fault or another program would."""
    other = apsw.Connection(str(path))
    other.execute(statement)
    other.close()
