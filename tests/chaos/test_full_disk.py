"""A worker on a full disk keeps its outcomes, and continues when there is space again (I24, I1)."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.chaos.small_disk import fill, small_disk
from tests.chaos.traffic import Traffic
from tests.servers.postgres import DATABASE, UNPRIVILEGED, Postgres
from tidemill import Filter, State, Tidemill
from tidemill.errors import StoreFull
from tidemill.stores.sqlite import SqliteStore


class DiskFullStore(SqliteStore):
    """Signals that a settle failed because of the full disk."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.full = asyncio.Event()

    async def settle(self, settlements, request=None):  # type: ignore[no-untyped-def]
        try:
            return await super().settle(settlements, request)
        except StoreFull:
            self.full.set()
            raise


async def test_a_worker_outlives_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", megabytes=4) as folder:
        store = DiskFullStore(folder / "jobs.db")
        app = Tidemill(store=store)
        runs: Counter[int] = Counter()

        @app.task(name="work")
        async def work(number: int) -> str:
            runs[number] += 1
            if number == 10:
                fill(folder)
            return "x" * 1000

        async with app:
            await app.enqueue_many(work.job(number) for number in range(300))
            worker = app.worker(concurrency=20, until_idle=True)
            running = asyncio.create_task(worker.run())
            await asyncio.wait_for(store.full.wait(), 30)
            with pytest.raises(StoreFull, match="no space left"):
                await app.enqueue_many([work.job(number) for number in range(1000, 1100)])
            (folder / "ballast").unlink()
            await asyncio.wait_for(running, 60)
            jobs = (await app.store.find(Filter(), limit=1000)).jobs
    assert worker.stats.outages >= 1
    assert len(jobs) == 300
    assert {(job.state, job.attempts, job.crashes) for job in jobs} == {(State.DONE, 1, 0)}
    assert set(runs.values()) == {1}


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """Yields a folder that other users may enter, unlike `tmp_path`."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.alone
@pytest.mark.timeout(120)
async def test_a_full_disk_of_a_server_heals(open_to_all: Path) -> None:
    """The disk of the tables is full. If the disk of the WAL is full, PostgreSQL stops and needs a manual
    restart."""
    with small_disk(open_to_all / "small", megabytes=60) as folder, Postgres() as server:
        tables = folder / "tables"
        tables.mkdir()
        if UNPRIVILEGED is not None:
            shutil.chown(tables, UNPRIVILEGED)
        with server.client("postgres") as client:
            client.execute(f"CREATE TABLESPACE small LOCATION '{tables}'")
            client.execute(f"ALTER DATABASE {DATABASE} SET TABLESPACE small")
        load = Traffic(server.url)
        async with load.under_way():
            await load.wait_for_progress()
            ballast = fill(folder)
            while load.refused < 5:  # noqa: ASYNC110 - until a listener was notified
                await asyncio.sleep(0.01)
            with pytest.raises(StoreFull, match="No space left on device; free some space"):
                await load.app.enqueue_many([load.work.job(-1) for _ in range(1000)])
            ballast.unlink()
            await load.wait_for_progress()
        await load.check(server.url)
