"""Waits for other jobs in real workers on SQLite, in threads and in child processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker import waits_app
from tidemill import JobFailed
from tidemill.core.claims import ClaimRequest, QueueShare

app = waits_app.app
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all tests: the application keeps the file that it opened first."""
    return tmp_path_factory.mktemp("waits")


@pytest.fixture(autouse=True)
async def folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    monkeypatch.chdir(place)
    async with app:
        yield place


async def work(**options: Any) -> None:
    async with asyncio.timeout(50):
        await app.worker(until_idle=True, **options).run()


async def make_suspects() -> None:
    """Makes all ready jobs suspects: a worker claims them and dies."""
    request = ClaimRequest(worker="dead", number=1, shares=(QueueShare("default", 100),), limit=100, lease=60)
    await app.store.claim(request)
    await app.store.reclaim(dead=["dead"])


async def test_worker_processes_run_what_their_handlers_wait_for_with_all_slots_busy(folder: Path) -> None:
    jobs = [await waits_app.fan_out.enqueue(), await waits_app.fan_out.enqueue()]
    command = (sys.executable, "-m", "tidemill", "worker", "tests.worker.waits_app:app")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    workers = [
        await asyncio.create_subprocess_exec(
            *command, "--concurrency", "2", "--until-idle", cwd=folder, env=environment
        )
        for _ in range(2)
    ]
    assert [await job.result(timeout=50) for job in jobs] == [90, 90]
    assert [await worker.wait() for worker in workers] == [0, 0]


@pytest.mark.parametrize("task", ["in_thread", "step_in_thread", "isolated"])
async def test_a_wait_in_a_thread_or_an_isolated_process_is_refused_at_once(task: str) -> None:
    job = await getattr(waits_app, task).enqueue(3)
    await work(concurrency=1)
    with pytest.raises(JobFailed, match=r"WaitRefused: job \w+ cannot wait for job \w+ in a "):
        await job.result()
    record = await job.status()
    assert (record.attempts, record.reason) == (1, "wrong use")
    assert record.error is not None
    assert "docs/how-to/flows.md" in record.error.message


async def test_a_thread_may_ask_for_a_result_that_is_there() -> None:
    child = await waits_app.child.enqueue(3)
    await work()
    job = await waits_app.looks_once.enqueue(child.id)
    await work()
    assert (await job.result())[0] == 6


async def test_i8_suspects_wait_for_suspects_in_their_processes_as_in_a_worker() -> None:
    """Each has a process although there is only one process slot: a handler that waits lends its slot."""
    job = await waits_app.waits_for.enqueue("suspect")
    await waits_app.child.using(id="suspect").enqueue(4)
    await make_suspects()
    worker = asyncio.create_task(work(concurrency=1, isolated_processes=1))
    result, child, parent = await job.result(timeout=50)
    await worker
    assert result == 8
    assert len({child, parent, os.getpid()}) == 3
