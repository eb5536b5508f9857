"""I20 in real processes: `python -m tidemill worker` on SQLite and uvloop, stopped while it is busy."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tidemill.clock import SystemClock, SystemEntropy
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.states import State
from tidemill.stores.sqlite import SqliteStore
from tidemill.worker.attempt import CLEANUP_SECONDS

GRACE = 2.0

APP = """
import asyncio
import os
import socket
from pathlib import Path
from tidemill import Tidemill

app = Tidemill()

def began():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(type(asyncio.get_running_loop()).__module__.encode(), "began")

@app.task(name="short")
async def short() -> str:
    began()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.5)
    return "finished"

@app.task(name="long")
async def long() -> None:
    began()
    await asyncio.sleep(600)

@app.task(name="leaves", queue="other")
async def leaves() -> None:
    if not Path("left").exists():
        Path("left").touch()
        os._exit(0)
"""


class Scene:
    """A folder with an application, a store with eight jobs, and a socket to which handlers write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'jobs.db'}"
        self.store = SqliteStore(str(folder / "jobs.db"), clock=SystemClock(), entropy=SystemEntropy())
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    async def prepare(self) -> None:
        (self.folder / "application.py").write_text(APP)
        self.line.bind(str(self.folder / "began"))
        self.line.setblocking(False)
        await self.store.open()
        names = ["short", "short", "short", "long", "long", "long", "long", "long"]
        jobs = [NewJob(id=f"{name}-{n}", task=name, payload=b"{}") for n, name in enumerate(names)]
        await self.store.insert([JobGroup("default", tuple(jobs))])

    @asynccontextmanager
    async def worker(self, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Starts a worker in a separate process group, as under a service manager."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tidemill", "worker", f"--grace={GRACE}s", *options),
            *("--", "application:app"),
            cwd=self.folder,
            env={**os.environ, "TIDEMILL_URL": self.url, "PYTHONPATH": str(self.folder)},
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)

    async def four_have_begun(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(30):
            for _ in range(4):
                assert (await loop.sock_recv(self.line, 100)).startswith(b"uvloop")

    async def stop(self, worker: asyncio.subprocess.Process) -> None:
        """Signals the whole group; running jobs may continue for a while."""
        began = asyncio.get_running_loop().time()
        os.killpg(worker.pid, signal.SIGTERM)
        (self.folder / "go").touch()
        async with asyncio.timeout(30):
            assert await worker.wait() == 0
        assert asyncio.get_running_loop().time() - began < GRACE + CLEANUP_SECONDS

    async def nothing_is_lost_or_charged(self) -> None:
        jobs = [job for job in await self.store.get([f"short-{n}" for n in range(3)]) if job is not None]
        assert [(job.state, job.result) for job in jobs] == [(State.DONE, b'"finished"')] * 3
        rest = [job for job in await self.store.get([f"long-{n}" for n in range(3, 8)]) if job is not None]
        assert [(job.state, job.attempts, job.crashes) for job in rest] == [(State.READY, 0, 0)] * 5
        assert (await self.store.counts())["default"] == {State.DONE: 3, State.READY: 5}


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path)
    await made.prepare()
    yield made
    await made.store.close()
    made.line.close()


@pytest.mark.parametrize("_round", range(2))
@pytest.mark.parametrize(
    "options",
    [["--concurrency=4"], ["--concurrency=2", "--processes=2"]],
    ids=["alone", "supervised"],
)
async def test_i20_sigterm_loses_and_charges_nothing(scene: Scene, options: list[str], _round: int) -> None:
    async with scene.worker(*options) as worker:
        await scene.four_have_begun()
        await scene.stop(worker)
    await scene.nothing_is_lost_or_charged()


async def test_i1_supervised_workers_end_when_idle_but_not_by_a_jobs_exit_code(scene: Scene) -> None:
    """The job ends its worker with 0, as an idle worker ends, and still runs again."""
    await scene.store.insert([JobGroup("other", (NewJob(id="a", task="leaves", payload=b"{}"),))])
    async with (
        scene.worker("--processes=1", "--until-idle", "--queues=other") as worker,
        asyncio.timeout(30),
    ):
        assert await worker.wait() == 0
    [job] = await scene.store.get(["a"])
    assert job is not None
    assert (job.state, job.crashes) == (State.DONE, 1)
