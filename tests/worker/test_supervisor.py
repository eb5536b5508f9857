"""Real worker processes on one SQLite file, one of which dies."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tidemill.clock import SystemClock, SystemEntropy
from tidemill.contract.jobs import ReclaimResult
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.states import State
from tidemill.stores.memory import MemoryStore
from tidemill.stores.sqlite import SqliteStore
from tidemill.worker.options import UniqueWorkerId
from tidemill.worker.supervisor import SUPERVISOR_VARIABLE, WORKER_ID_VARIABLE, Supervisor, supervised_id
from tidemill.worker.worker import _make_worker_id

WORKER = """
import asyncio, os, sys
from tidemill.clock import SystemClock, SystemEntropy
from tidemill.stores.sqlite import SqliteStore
from tidemill.tasks.definition import make_task_definition
from tidemill.worker import Worker, WorkerOptions
from tidemill.worker.drain import stop_on_signals
from tidemill.worker.supervisor import supervised_id

async def tick(number: int) -> int:
    await asyncio.sleep(0.05)
    return number

async def deadly() -> None:
    os._exit(9)

async def main(path: str) -> None:
    worker_id = supervised_id()
    clock, entropy = SystemClock(), SystemEntropy()
    store = SqliteStore(path, clock=clock, entropy=entropy)
    await store.open()
    tasks = {task.__name__: make_task_definition(task, name=task.__name__) for task in (tick, deadly)}
    options = WorkerOptions(id=worker_id, concurrency=100, lease=30)
    worker = Worker(store, tasks, options=options, clock=clock, entropy=entropy)
    with stop_on_signals(worker.stop, worker.stop_now):
        await worker.run()
    await store.close()

if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
"""


async def ended(store: SqliteStore, ids: list[str]) -> None:
    """Returns when all jobs have ended."""
    for job in ids:
        listener = store.listen([f"job:{job}"])
        while True:
            listener.arm()
            [found] = await store.get([job])
            assert found is not None
            if found.state in (State.DONE, State.FAILED):
                break
            await listener.wait(1)
        listener.close()


async def test_i8_one_deadly_job_under_supervision_fails_alone(tmp_path: Path) -> None:
    """The worker dies with everything it runs; its jobs come back at once, not after their lease."""
    (tmp_path / "worker.py").write_text(WORKER)
    store = SqliteStore(str(tmp_path / "jobs.db"), clock=SystemClock(), entropy=SystemEntropy())
    await store.open()
    jobs = [NewJob(id=f"{n}", task="tick", payload=b'{"number":%d}' % n) for n in range(60)]
    jobs.insert(30, NewJob(id="deadly", task="deadly", payload=b"{}"))
    await store.insert([JobGroup("default", tuple(jobs))])
    command = [sys.executable, str(tmp_path / "worker.py"), str(tmp_path / "jobs.db")]
    supervisor = Supervisor(command, 1, store=store, entropy=SystemEntropy())
    running = asyncio.create_task(supervisor.run())
    async with asyncio.timeout(25):
        await ended(store, [job.id for job in jobs])
    [deadly] = await store.get(["deadly"])
    assert deadly is not None
    assert (deadly.state, deadly.reason) == (State.FAILED, "poison")
    assert (await store.counts())["default"][State.DONE] == 60
    assert supervisor.restarts == 1
    supervisor.stop()
    await running
    await store.close()


QUITS = "import sys; sys.exit(3)"


async def test_a_worker_that_dies_at_once_is_restarted_with_backoff() -> None:
    store = await MemoryStore().open()
    supervisor = Supervisor([sys.executable, "-S", "-c", QUITS], 1, store=store, entropy=SystemEntropy())
    waits: list[float] = []
    real = asyncio.timeout

    def recorded(seconds: float | None) -> asyncio.Timeout:
        assert seconds is not None
        waits.append(seconds)
        if len(waits) == 8:
            supervisor.stop()
        return real(0.001)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "timeout", recorded)
        await supervisor.run()
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert supervisor.restarts == 7


async def test_an_idle_worker_that_ends_well_is_not_restarted() -> None:
    store = await MemoryStore().open()
    command = [sys.executable, "-S", "-c", ""]
    supervisor = Supervisor(command, 3, store=store, entropy=SystemEntropy(), until_idle=True)
    await supervisor.run()
    assert (supervisor.restarts, supervisor.pids) == (0, {})


class StopsAfter(MemoryStore):
    """Counts dead workers, and stops the supervisor at the third."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: list[str] = []
        self.supervisor: Supervisor | None = None

    async def reclaim(self, dead: Sequence[str] = ()) -> ReclaimResult:
        self.dead += dead
        if len(self.dead) == 3 and self.supervisor is not None:
            self.supervisor.stop()
        return await super().reclaim(dead=dead)


async def test_a_worker_ended_by_a_job_that_exits_with_0_is_restarted_and_reclaimed() -> None:
    store = StopsAfter()
    await store.open()
    command = [sys.executable, "-S", "-c", "import os; os._exit(0)"]
    store.supervisor = Supervisor(command, 1, store=store, entropy=SystemEntropy())
    async with asyncio.timeout(20):
        await store.supervisor.run()
    assert len(set(store.dead)) == 3
    assert store.supervisor.restarts == 2


async def test_a_process_that_cannot_be_started_now_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await MemoryStore().open()
    real, refused = asyncio.create_subprocess_exec, iter([True, True])

    async def exhausted(*command: str, **options: Any) -> Any:
        if next(refused, False):
            raise BlockingIOError(errno.EAGAIN, "no process to be had")
        return await real(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", exhausted)
    command = [sys.executable, "-S", "-c", ""]
    supervisor = Supervisor(command, 1, store=store, entropy=SystemEntropy(), until_idle=True)
    async with asyncio.timeout(20):
        await supervisor.run()
    assert supervisor.restarts == 2


def test_the_workers_id_is_taken_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKER_ID_VARIABLE, "w-1")
    assert supervised_id() == "w-1"
    assert WORKER_ID_VARIABLE not in os.environ
    assert supervised_id() is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
async def test_a_worker_whose_supervisor_is_gone_drains(tmp_path: Path) -> None:
    code = "from tidemill.worker.supervisor import supervised_id; supervised_id(); input()"
    environment = {**os.environ, SUPERVISOR_VARIABLE: "1", WORKER_ID_VARIABLE: "w"}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, env=environment, stdin=asyncio.subprocess.PIPE
    )
    assert await child.wait() == -signal.SIGTERM


def test_the_id_a_supervisor_gives_is_plain_text_to_every_store() -> None:
    """PostgreSQL's driver and msgspec write str, and no subclass of it."""
    given = _make_worker_id(UniqueWorkerId("w-1"), SystemEntropy())
    assert (given, type(given)) == ("w-1", str)
