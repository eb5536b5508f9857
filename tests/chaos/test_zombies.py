"""Workers freeze past their leases while they run jobs, and continue: their outcomes are refused (I6, I7).

On a file, a worker that is stopped during a write blocks all others; `test_chaos_run` covers some of
these."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.chaos_run import ROOT
from tests.chaos.chaos_stores import create_store
from tests.chaos.event_files import EventSummary, read_events
from tests.chaos.tasks import work
from tidemill import Tidemill

ZOMBIES = 3 if "TIDEMILL_CHAOS_SECONDS" not in os.environ else 30
JOBS_PER_WORKER = 4
"""Jobs per worker, all running at once."""
LONG_JOB_MILLISECONDS = 1500.0
"""Milliseconds per job: less than a lease, so that none expires while a worker is frozen."""


async def start(folder: Path, url: str) -> asyncio.subprocess.Process:
    with (folder / "output.txt").open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos.worker", str(JOBS_PER_WORKER)),
            env={**os.environ, "CHAOS_FOLDER": str(folder), "CHAOS_URL": url},
            cwd=ROOT,
            stdout=output,
            stderr=output,
        )


async def until(folder: Path, condition: Callable[[EventSummary], bool]) -> EventSummary:
    async with asyncio.timeout(90):
        while not condition(witness := read_events(folder)):  # noqa: ASYNC110 - other processes signal it by files
            await asyncio.sleep(0.05)
    return witness


@pytest.mark.parametrize("store", ["redis", "postgres"])
@pytest.mark.timeout(240)
@pytest.mark.alone
async def test_zombies_are_refused(store: str, tmp_path: Path) -> None:
    jobs = ZOMBIES * JOBS_PER_WORKER
    processes: list[asyncio.subprocess.Process] = []
    with create_store(store, tmp_path) as where:
        app = Tidemill(where.url)
        task = app.task(name="work")(work_of_this_app)
        try:
            async with app:
                handles = await app.enqueue_many(task.job(LONG_JOB_MILLISECONDS) for _ in range(jobs))
                processes += [await start(tmp_path, where.url) for _ in range(ZOMBIES)]
                await until(tmp_path, lambda witness: len(witness.started) == jobs)
                for process in processes:
                    process.send_signal(signal.SIGSTOP)
                processes.append(await start(tmp_path, where.url))
                names = {handle.id for handle in handles}
                await until(tmp_path, lambda witness: names <= _done(witness))
                for process in processes:
                    process.send_signal(signal.SIGCONT)
                witness = await until(tmp_path, lambda witness: witness.refused > 0)
        finally:
            for process in processes:
                process.kill()
                await process.wait()
    assert witness.stale_writes_accepted() == []
    assert all(runs >= 1 for runs in witness.started.values())


def _done(witness: EventSummary) -> set[str]:
    return {job for job, answers in witness.settled.items() if any(answer == "ok" for _, answer in answers)}


async def work_of_this_app(milliseconds: float) -> None:
    """Only enqueued from here; the workers run `tests.chaos.tasks.work`."""
    raise AssertionError(work, milliseconds)
