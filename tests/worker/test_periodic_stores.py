"""Periodic functions and reports about services on stores that several processes share."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tidemill import DependencyUnavailable, Tidemill


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue(f"{request.param}_url"))


async def test_a_wake_up_and_a_report_cross_processes(url: str) -> None:
    """One application stands for the process with the worker, the other for a web process."""
    working, web = Tidemill(url), Tidemill(url)
    runs = asyncio.Semaphore(0)

    async def reconcile() -> None:
        runs.release()

    working.periodic("reconcile", every=3600)(reconcile)
    remote = web.periodic("reconcile", every=3600)(reconcile)

    @working.task(name="fetch")
    async def fetch() -> None:
        raise DependencyUnavailable("S3", "no route to host", retry_in=600)

    async with working, web:
        worker = working.worker()
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            await runs.acquire()
            while runs.locked():  # a wake-up before the worker listens is lost, which costs time only
                remote.wake()
                await asyncio.sleep(0.05)
            job = await fetch.enqueue()
            while not (found := await web.inspect.dependencies()):  # noqa: ASYNC110 - it is in the store
                await asyncio.sleep(0.05)
        assert [(one.name, one.problem, one.is_away) for one in found] == [("S3", "no route to host", True)]
        assert "waiting for S3: no route to host" in (await web.explain(job.id)).sentence
        worker.stop()
        await running
