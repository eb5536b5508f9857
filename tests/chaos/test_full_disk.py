"""A worker on a full disk keeps its outcomes, and goes on when there is space again (I24, I1)."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.disk import fill, small_disk
from tidemill import Filter, State, Tidemill
from tidemill.errors import StoreFull
from tidemill.stores.sqlite import SqliteStore


class Watched(SqliteStore):
    """Tells when a settle met the full disk."""

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
        store = Watched(folder / "jobs.db")
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
