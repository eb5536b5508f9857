"""The jobs that rows name."""

from __future__ import annotations

from pathlib import Path

from tidemill import State, Tidemill
from tidemill_apps.common.status import LIVE_STATES, MAX_JOBS_PER_QUERY, count_jobs, load_jobs


async def test_jobs_are_loaded_by_id_however_many(tmp_path: Path) -> None:
    app = Tidemill(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="work", queue="work")
    async def work(number: int) -> None: ...

    async with app:
        handles = await app.enqueue_many(work.job(number) for number in range(MAX_JOBS_PER_QUERY + 5))
        ids = [handle.id for handle in handles]
        await app.inspect.cancel(ids[0])
        assert set(await load_jobs(app, [*ids, "unknown"])) == set(ids)
        assert set(await load_jobs(app, ids, LIVE_STATES)) == set(ids[1:])
        assert await load_jobs(app, []) == {}
        assert await count_jobs(app, "work", LIVE_STATES) == len(ids) - 1
        assert await count_jobs(app, "work", (State.RUNNING,)) == 0
        assert await count_jobs(app, "other", LIVE_STATES) == 0
