"""Real worker processes are killed, on every store: every tick has exactly one job (I12)."""

from __future__ import annotations

import asyncio
import math
import os
import random
from pathlib import Path

import pytest

from tests.quotas.worker_processes import WorkerProcesses
from tidemill import Filter, State, Tidemill
from tidemill.contract.coordination import worklist_topic
from tidemill.core.documents import DocumentKind
from tidemill.schedules.due_ticks import make_tick_job_id

KILLS = int(os.environ.get("TIDEMILL_KILLED_LEADERS", "5"))


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Starts a server only for the tests that need it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return str(request.getfixturevalue(f"{request.param}_url"))


async def test_i12_killed_leaders_lose_and_double_no_tick(tmp_path: Path, url: str) -> None:
    app, chance = Tidemill(url), random.Random(5)
    start = float(int(app.clock.wall()) + 3)
    environment = {"TIDEMILL_URL": url, "START": str(start)}
    processes = WorkerProcesses("tests.schedules.killed_worker", environment, tmp_path / "output.txt")
    try:
        async with app:
            await processes.start(3)
            for _ in range(KILLS):
                await _ticked(app)
                await asyncio.sleep(chance.random() / 10)  # anywhere in what comes of a tick
                await processes.kill(chance.randrange(3))
                await processes.start()
            await _ticked(app)
            processes.check()
    finally:
        await processes.stop()
    async with app:
        for name in ("a", "b", "c"):
            await _check(app, name, start)


async def _ticked(app: Tidemill) -> None:
    """Waits until a schedule has created another job."""
    before = await _jobs(app)
    while await _jobs(app) == before:
        listener = app.store.listen([worklist_topic(DocumentKind.SCHEDULE)])
        listener.arm()
        await listener.wait(0.2)
        listener.close()


async def _jobs(app: Tidemill) -> int:
    return sum((await app.store.counts()).get("default", {}).values())


async def _check(app: Tidemill, name: str, start: float) -> None:
    """Checks that ticks have no gap from first to last; the workers decide how many have ended."""
    view = await app.schedules.get(name)
    found = await app.inspect.find(Filter(states=tuple(State)), limit=1000)
    made = sorted(job.id for job in found.jobs if job.id.startswith(f"{name}@"))
    last = view.history[-1].tick
    first = max(start, math.ceil(view.created))  # a slow machine may be late with the first worker
    assert made == [make_tick_job_id(name, first + count) for count in range(int(last - first) + 1)]
    assert len(made) >= KILLS // 2
