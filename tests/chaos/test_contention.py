"""Sixteen processes on one file: no job is claimed twice, none is lost, and counts equal a recount (I1,
I9)."""

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.chaos_run import ROOT
from tests.chaos.event_files import read_events
from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.stores.sqlite import SqliteStore

PROCESSES = 16
SECONDS = float(os.environ.get("TIDEMILL_CONTENTION_SECONDS", "6"))


@pytest.mark.alone
@pytest.mark.timeout(SECONDS + 120)
async def test_sixteen_processes_share_one_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await (await SqliteStore(path).open()).close()
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.chaos.contention_process", str(path), str(SECONDS)),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for _ in range(PROCESSES)
    ]
    assert [await process.wait() for process in processes] == [0] * PROCESSES
    witness = read_events(tmp_path)
    store = await SqliteStore(path).open()
    counts = (await store.counts())["q"]
    page = await store.find(Filter(), limit=1_000_000)
    await store.close()
    assert counts == Counter(job.state for job in page.jobs)
    assert {job.id for job in page.jobs} == witness.accepted
    done = {job.id for job in page.jobs if job.state is State.DONE}
    assert done == set(witness.settled)
    assert all(len(answers) == 1 for answers in witness.settled.values())
    assert set(counts) <= {State.DONE, State.READY}
    assert len(done) > PROCESSES
