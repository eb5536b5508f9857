"""I18 in real processes: workers on SQLite are killed around a paid call over HTTP, and the provider's
records show what was billed. Also steps of handlers in child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.worker import isolated_tasks
from tests.worker.test_isolation import get, insert, isolated, make
from tidemill.clock import SystemClock, SystemEntropy
from tidemill.contract.coordination import job_topic
from tidemill.core.checkpoints import OnUnknown
from tidemill.core.jobs import Job, JobGroup, NewJob
from tidemill.core.retry import Retry
from tidemill.core.states import FINAL, State
from tidemill.stores.memory import MemoryStore
from tidemill.stores.sqlite import SqliteStore
from tidemill.testing.simulator import (
    OpenAIDialect,
    Quota,
    SimulatedProvider,
    SimulatorOptions,
    SimulatorServer,
)

APP = """
import asyncio, http.client, json, os, socket
from tidemill import Context, Tidemill

app = Tidemill()

def say(word):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(word, "line")

def ask(question: str) -> str:
    sent = {"model": "m", "messages": [{"role": "user", "content": question}]}
    provider = http.client.HTTPConnection(os.environ["PROVIDER"])
    provider.request("POST", "/v1/chat/completions", json.dumps(sent), {"x-job": "job"})
    say(b"sent")
    return json.load(provider.getresponse())["object"]

@app.task(name="talk")
async def talk(ctx: Context, on_unknown: str) -> str:
    told = await ctx.step("ask", ask, "why?", paid=True, on_unknown=on_unknown)
    say(b"paid")
    if ctx.attempt == 1 and not os.environ.get("SECOND"):
        await asyncio.sleep(600)
    return told
"""


class Scene:
    """A folder with an application, a store with one job, and a socket to which the handler writes."""

    def __init__(self, folder: Path, server: SimulatorServer) -> None:
        self.folder, self._provider = folder, server.url.removeprefix("http://")
        self.store = SqliteStore(folder / "jobs.db", clock=SystemClock(), entropy=SystemEntropy())
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    async def prepare(self, on_unknown: OnUnknown) -> None:
        (self.folder / "application.py").write_text(APP)
        self._line.bind(str(self.folder / "line"))
        self._line.setblocking(False)
        await self.store.open()
        payload = b'{"on_unknown":"%s"}' % on_unknown.encode()
        await self.store.insert([JobGroup("default", (NewJob(id="job", task="talk", payload=payload),))])

    @asynccontextmanager
    async def worker(self, **more: str) -> AsyncIterator[None]:
        """Runs a worker; it is killed with everything it started when the block ends."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tidemill", "worker", "--lease=2s", "--poll=0.2s", "application:app"),
            cwd=self.folder,
            env={
                **os.environ,
                "TIDEMILL_URL": f"sqlite:///{self.folder / 'jobs.db'}",
                "PYTHONPATH": os.pathsep.join((str(self.folder), os.environ.get("PYTHONPATH", ""))),
                "PROVIDER": self._provider,
                **more,
            },
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            await self.store.reclaim([worker.id for worker in await self.store.workers()])

    async def close(self) -> None:
        self._line.close()
        await self.store.close()

    async def hear(self, word: bytes) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(30):
            while await loop.sock_recv(self._line, 100) != word:
                pass

    async def ended(self) -> Job:
        """Waits for the end of the job; polls in case the wake-up is lost."""
        listener = self.store.listen([job_topic("job")])
        async with asyncio.timeout(30):
            while True:
                listener.arm()
                [job] = await self.store.get(["job"])
                if job is not None and job.state in FINAL:
                    listener.close()
                    return job
                await listener.wait(1.0)


@asynccontextmanager
async def scene(
    folder: Path, on_unknown: OnUnknown, latency: float
) -> AsyncIterator[tuple[Scene, SimulatedProvider]]:
    options = SimulatorOptions(latency=(latency, latency))
    provider = SimulatedProvider(
        OpenAIDialect(), (Quota.rolling("requests", 99),), options, clock=SystemClock()
    )
    async with SimulatorServer(provider) as server:
        made = Scene(folder, server)
        await made.prepare(on_unknown)
        yield made, provider
        await made.close()


@pytest.mark.parametrize("on_unknown", ["retry", "park"])
async def test_i18_a_handler_killed_after_its_paid_step_pays_once(
    tmp_path: Path, on_unknown: OnUnknown
) -> None:
    async with scene(tmp_path, on_unknown, latency=0.0) as (made, provider):
        async with made.worker():
            await made.hear(b"paid")
        async with made.worker(SECOND="1"):
            job = await made.ended()
        assert (job.state, job.result) == (State.DONE, b'"chat.completion"')
        assert len(provider.request_log.bills) == 1
        [kept] = await made.store.checkpoints("job")
        assert (kept.result, kept.unknown) == (b'"chat.completion"', 0)
        assert await made.store.check() == ()


@pytest.mark.parametrize("on_unknown", ["retry", "park"])
async def test_i18_a_handler_killed_between_sending_and_keeping(
    tmp_path: Path, on_unknown: OnUnknown
) -> None:
    async with scene(tmp_path, on_unknown, latency=0.5) as (made, provider):
        async with made.worker():
            await made.hear(b"sent")
        async with made.worker(SECOND="1"):
            job = await made.ended()
        unknown = len(provider.request_log.unknown)
        [mark] = await made.store.checkpoints("job")
        if on_unknown == "retry":
            assert (job.state, mark.unknown) == (State.DONE, 1)
            assert 1 <= len(provider.request_log.bills) <= 1 + unknown
        else:
            assert (job.state, job.reason, mark.result) == (State.FAILED, "unknown outcome", None)
            assert len(provider.request_log.bills) <= 1


@pytest.mark.parametrize("handler", [isolated_tasks.pays, isolated_tasks.pays_plainly])
async def test_i18_an_isolated_handler_that_dies_after_its_paid_step_pays_once(
    tmp_path: Path, handler: Any
) -> None:
    store = await MemoryStore().open()
    witness = tmp_path / "bills"
    await insert(store, handler.__name__, "a", b'{"path":"%s"}' % str(witness).encode())
    await make(store, isolated(handler, retry=Retry(attempts=3, first=0, jitter=0)), until_idle=True).run()
    job = await get(store, "a")
    assert (job.state, job.result, job.attempts) == (State.DONE, b'["paid","free"]', 2)
    assert witness.read_text().splitlines() == ["paid", "free", "died", "raised"]
    assert [mark.paid for mark in await store.checkpoints("a")] == [True, False]
    await store.close()


async def test_an_isolated_handlers_unknown_step_parks_its_job(tmp_path: Path) -> None:
    store = await MemoryStore().open()
    witness = tmp_path / "bills"
    await insert(store, "dies_paying", "a", b'{"path":"%s"}' % str(witness).encode())
    await make(store, isolated(isolated_tasks.dies_paying), until_idle=True).run()
    job = await get(store, "a")
    assert (job.state, job.reason) == (State.FAILED, "unknown outcome")
    assert witness.read_text().splitlines() == ["paying"]
    await store.close()
