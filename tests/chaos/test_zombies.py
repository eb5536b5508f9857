"""Workers that stand still past their leases, with jobs in their hands, and go on: what they bring is refused
(I6, I7). On a file whoever is stopped while it writes stops all others: `test_fire` has some there."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.fire import ROOT
from tests.chaos.ledger import Witness, read
from tests.chaos.places import place
from tests.chaos.tasks import work
from tidemill import Tidemill

ZOMBIES = 3 if "TIDEMILL_CHAOS_SECONDS" not in os.environ else 30
EACH = 4
"""Jobs per worker, all of them under way at once."""
LONG = 1500.0
"""Milliseconds: less than a lease, so nobody's ends while it stands still."""


async def start(folder: Path, url: str) -> asyncio.subprocess.Process:
    with (folder / "output.txt").open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos.worker", str(EACH)),
            env={**os.environ, "CHAOS_FOLDER": str(folder), "CHAOS_URL": url},
            cwd=ROOT,
            stdout=output,
            stderr=output,
        )


async def until(folder: Path, said: Callable[[Witness], bool]) -> Witness:
    async with asyncio.timeout(90):
        while not said(witness := read(folder)):  # noqa: ASYNC110 - other processes say so, by files
            await asyncio.sleep(0.05)
    return witness


@pytest.mark.parametrize("store", ["redis", "postgres"])
@pytest.mark.timeout(240)
@pytest.mark.alone
async def test_zombies_are_refused(store: str, tmp_path: Path) -> None:
    jobs = ZOMBIES * EACH
    processes: list[asyncio.subprocess.Process] = []
    with place(store, tmp_path) as where:
        app = Tidemill(where.url)
        task = app.task(name="work")(work_of_this_app)
        try:
            async with app:
                handles = await app.enqueue_many(task.job(LONG) for _ in range(jobs))
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


def _done(witness: Witness) -> set[str]:
    return {job for job, answers in witness.settled.items() if any(answer == "ok" for _, answer in answers)}


async def work_of_this_app(milliseconds: float) -> None:
    """Only enqueued from here; what runs is `tests.chaos.tasks.work`."""
    raise AssertionError(work, milliseconds)
