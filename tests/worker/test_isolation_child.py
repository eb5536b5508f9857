"""A job with a crash on record behaves in its child process exactly as in a worker (I8)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.worker import child_app
from tidemill import Context, Tidemill
from tidemill.client.job_handle import JobHandle
from tidemill.core.claims import ClaimRequest, QueueShare
from tidemill.core.states import State
from tidemill.telemetry.events import ChildStartFailed, Event, LifespanSkipped, SuspectNotIsolated
from tidemill.worker import Worker
from tidemill.worker.isolation import runner

LONG = 60.0
app = child_app.app


@pytest.fixture
async def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    monkeypatch.setenv(child_app.FOLDER, str(tmp_path))
    monkeypatch.setenv(child_app.WORKER, str(os.getpid()))
    async with app:
        yield tmp_path


async def make_suspects(of: Tidemill = app) -> None:
    """Makes all ready jobs suspects: a worker claims them and dies."""
    share, dead = QueueShare("default", 100), of.entropy.new_id()
    await of.store.claim(ClaimRequest(worker=dead, number=1, shares=(share,), limit=100, lease=LONG))
    await of.store.reclaim(dead=[dead])


async def work(**options: Any) -> None:
    await app.worker(until_idle=True, isolated_processes=1, **options).run()


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await task


def notes(folder: Path, word: str) -> list[str]:
    return [line for line in (folder / "notes").read_text().splitlines() if line.split()[0] == word]


@pytest.mark.parametrize("task", ["looks", "looks-sync", "local"])
async def test_i8_suspects_share_one_lifespan_on_one_loop(folder: Path, task: str) -> None:
    """The worker opens its lifespan; the child opens one for all of its jobs, and closes it."""
    handler = {"looks": child_app.looks, "looks-sync": child_app.looks_sync, "local": child_app.local}[task]
    jobs: list[JobHandle[Any]] = [await handler.enqueue() for _ in range(3)]
    await make_suspects()
    await work()
    seen = [await job.result(timeout=1) for job in jobs]
    [pid] = {pid for pid, *_ in seen}
    assert pid != os.getpid()
    assert seen == [[pid, pid, True, "set"]] * 3
    assert notes(folder, "opened") == [f"opened {os.getpid()}", f"opened {pid}"]
    assert notes(folder, "closed") == [f"closed {pid}", f"closed {os.getpid()}"]


async def test_i8_middleware_runs_around_the_handler_in_the_child(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler reads context variables that the middleware set. A child without the middleware leaves
    the job to the worker."""
    known = await child_app.reads_variable.enqueue()
    await make_suspects()
    await work()
    pid, variable = await known.result(timeout=1)
    assert pid != os.getpid()
    assert variable == f"reads-variable in {pid}"

    async def more(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:
        return await run()

    monkeypatch.setattr(app, "middlewares", [*app.middlewares, more])
    unknown = await child_app.reads_variable.enqueue()
    await make_suspects()
    await work()
    assert await unknown.result(timeout=1) == [os.getpid(), f"reads-variable in {os.getpid()}"]


async def test_i8_a_batch_of_suspects_has_the_state(folder: Path) -> None:
    jobs = [await child_app.looks_batch.enqueue(number) for number in range(3)]
    await make_suspects()
    await work()
    for number, job in enumerate(jobs):
        seen = await job.result(timeout=1)
        assert seen[0] != os.getpid()
        assert seen == [seen[0], seen[0], number, "set"]


@pytest.mark.parametrize("task", [child_app.cleans_up, child_app.gives_up])
async def test_i21_a_handler_over_its_timeout_may_clean_up_in_the_child(folder: Path, task: Any) -> None:
    """The process is then free for the next job."""
    late = await task.enqueue()
    after = await child_app.looks.enqueue()
    await make_suspects()
    await work()
    status = await late.status()
    assert (status.state, status.crashes) == (State.FAILED, 1)
    assert status.error is not None
    assert status.error.type == "Timeout"
    pid = (await after.result(timeout=1))[0]
    assert pid != os.getpid()
    assert notes(folder, "cleaned") == [f"cleaned {pid}"]


async def test_a_lifespan_that_fails_in_the_child_charges_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job waits, and so do others that need a child. After three failures in a row, suspects run in the
    worker."""
    monkeypatch.setenv("TIDEMILL_TEST_CHILD_FAILS", "1")
    monkeypatch.setattr(runner, "FIRST_RETRY_SECONDS", 0.01)
    events: list[Event] = []
    app.on(ChildStartFailed, SuspectNotIsolated)(events.append)
    jobs = [await child_app.looks.enqueue() for _ in range(2)]
    await make_suspects()
    worker = app.worker(isolated_processes=1, poll=0.05)
    async with running(worker):
        seen = [await job.result(timeout=LONG) for job in jobs]
    assert [pid for pid, *_ in seen] == [os.getpid()] * 2
    assert len(notes(folder, "fails")) == 3
    failed = [event for event in events if isinstance(event, ChildStartFailed)]
    assert [event.problem for event in failed] == ["the lifespan raised ConnectionError: no such host"] * 3
    assert [event.retry_in for event in failed] == [0.01, 0.02, 0.04]
    [refused] = [event for event in events if isinstance(event, SuspectNotIsolated)]
    assert refused.task == "looks"
    for job in jobs:
        status = await job.status()
        assert (status.state, status.crashes, status.attempts) == (State.DONE, 1, 1)


async def test_an_isolated_task_does_not_wait_for_ever_for_the_lifespan(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After three failures it runs in a child without the lifespan. When the lifespan succeeds, it is used
    again."""
    monkeypatch.setenv("TIDEMILL_TEST_CHILD_FAILS", "1")
    monkeypatch.setattr(runner, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(runner, "MAX_RETRY_SECONDS", 0.02)
    events: list[Event] = []
    app.on(LifespanSkipped)(events.append)
    async with running(app.worker(isolated_processes=1, poll=0.05)):
        for _ in range(2):
            pid, state = await (await child_app.apart.enqueue()).result(timeout=LONG)
            assert pid != os.getpid()
            assert state is None
        monkeypatch.delenv("TIDEMILL_TEST_CHILD_FAILS")
        pid, state = await (await child_app.apart.enqueue()).result(timeout=LONG)
        assert state == pid != os.getpid()
    [event] = events
    assert isinstance(event, LifespanSkipped)
    assert (event.task, event.problem) == ("apart", "the lifespan raised ConnectionError: no such host")


async def test_i1_a_child_takes_no_job_for_a_store_in_the_workers_memory() -> None:
    """It would lose the job with its process. Suspects run where the store is."""
    async with child_app.in_memory as app:
        suspect = await child_app.counts.enqueue()
        await make_suspects(app)
        quiet, enqueues = await child_app.counts_apart.enqueue(), await child_app.enqueues_apart.enqueue()
        await app.worker(until_idle=True, isolated_processes=1).run()
        assert await suspect.result(timeout=1) == os.getpid()
        assert await quiet.result(timeout=1) != os.getpid()
        status = await enqueues.status()
    assert status.state is State.FAILED
    assert status.error is not None
    assert status.error.type == "ConfigurationError"
    assert "memory:// keeps jobs in the memory of the worker's process" in status.error.message


UNGUARDED = """
import asyncio
import os

from tidemill import Tidemill
from tidemill.core.claims import ClaimRequest, QueueShare

app = Tidemill(f"sqlite:///{os.path.dirname(os.path.abspath(__file__))}/jobs.db")

@app.task(name="apart", isolate=True)
def apart() -> int:
    return os.getpid()

@app.task(name="plain")
def plain() -> int:
    return os.getpid()

async def main() -> None:
    async with app:
        suspect = await plain.enqueue()
        share = QueueShare("default", 1)
        await app.store.claim(ClaimRequest(worker="dead", number=1, shares=(share,), limit=1, lease=60))
        await app.store.reclaim(dead=["dead"])
        await apart.enqueue()
        await app.worker(until_idle=True).run()
        print("suspect ran in the worker:", await suspect.result() == os.getpid())

"""
GUARD = 'if __name__ == "__main__":\n    '
START = "asyncio.run(main())\n"


def script(folder: Path, source: str) -> str:
    path = folder / "script.py"
    path.write_text(source)
    command = [sys.executable, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=True)
    return ran.stdout + ran.stderr


def test_a_script_without_a_guard_starts_no_worker_in_a_child(tmp_path: Path) -> None:
    output = script(tmp_path, UNGUARDED + START)
    assert output.count("suspect ran in the worker: True") == 1
    assert output.count("worker started") == 1
    assert "put what starts it under `if __name__" in output, "the isolated task fails with the reason"


def test_a_script_whose_guard_guards_something_else_is_refused(tmp_path: Path) -> None:
    output = script(tmp_path, UNGUARDED + GUARD + "print()\n" + START)
    assert output.count("suspect ran in the worker: True") == 1
    assert output.count("worker started") == 1
    assert "imports its main module, which starts another worker" in output


def test_a_script_with_a_guard_is_imported_in_the_child(tmp_path: Path) -> None:
    output = script(tmp_path, UNGUARDED + GUARD + START)
    assert "suspect ran in the worker: False" in output
    assert "cannot" not in output


async def test_the_number_of_children_is_bounded(folder: Path) -> None:
    jobs = [await child_app.looks.enqueue() for _ in range(6)]
    await make_suspects()
    await app.worker(until_idle=True, isolated_processes=2).run()
    pids = {(await job.result(timeout=1))[0] for job in jobs}
    assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2
    assert len(notes(folder, "opened")) == 1 + len(pids)
