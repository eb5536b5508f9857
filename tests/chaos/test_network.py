"""A network that cuts replies, resets, goes silent and forgets: nothing is lost or doubled, nobody is charged
with a crash, and all goes on by itself (I1, I3, I8, I22, S12)."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.servers.proxy import Proxy
from tidemill import Filter, State, Tidemill
from tidemill.errors import StoreError

ROUNDS = int(os.environ.get("TIDEMILL_NETWORK_ROUNDS", "2"))
"""Of six faults each; 50 in `make chaos`."""
DEADLINE = 5.0
LEASE = 60.0
"""No fault lasts so long: whatever runs twice was doubled."""


class Network:
    """`straight` leads to the same server past the proxy."""

    def __init__(self, proxy: Proxy, straight: str, port: int) -> None:
        self.proxy, self.straight = proxy, straight
        self.url = straight.replace(f":{port}", f":{proxy.port}")
        self._random = random.Random(1)
        self.cuts = 0

    async def cut(self) -> None:
        """In the middle of a reply, or before its first byte. The server has done what it was asked."""
        cut = self.proxy.cut_after(self._random.choice([0, 0, 1, 30, 300]))
        async with asyncio.timeout(30):
            await cut
        self.cuts += 1

    async def reset(self) -> None:
        self.proxy.reset()

    async def refuse(self) -> None:
        await self.proxy.refuse()
        self.proxy.reset()
        await asyncio.sleep(0.3)
        await self.proxy.accept()

    async def be_slow(self) -> None:
        self.proxy.delay = 0.1
        await asyncio.sleep(0.5)
        self.proxy.delay = 0.0

    async def be_silent(self) -> None:
        self.proxy.hold()
        await asyncio.sleep(0.5)
        self.proxy.release()

    async def forget(self) -> None:
        """Half-open connections: clients wait for answers that never come."""
        self.proxy.forget()

    def faults(self) -> list[Any]:
        every = [self.cut, self.cut, self.reset, self.refuse, self.be_slow, self.be_silent]
        self._random.shuffle(every)
        return every


@pytest.fixture(params=["redis", "postgres"])
async def network(request: pytest.FixtureRequest) -> AsyncIterator[Network]:
    url = request.getfixturevalue(f"{request.param}_url")
    server = request.getfixturevalue(f"{request.param}_server")
    async with Proxy(server.port) as proxy:
        yield Network(proxy, url, server.port)


class Load:
    """Sends until it is told to stop, each job until it is accepted, and counts who ran how often."""

    def __init__(self, url: str) -> None:
        self.app = Tidemill(url)
        self.runs: Counter[int] = Counter()
        self.sent: list[str] = []
        self.refused = 0
        self.longest = 0.0
        self._over = False

        @self.app.task(name="work")
        async def work(number: int) -> None:
            self.runs[number] += 1

        self._work = work

    async def send(self) -> None:
        while not self._over:
            request = self._work.job(len(self.sent))
            while not await self._accepted(request):
                self.refused += 1
            await asyncio.sleep(0.005)

    async def _accepted(self, request: Any) -> bool:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            [handle] = await self.app.enqueue_many([request])
        except StoreError:
            return False
        finally:
            self.longest = max(self.longest, loop.time() - began)
        self.sent.append(handle.id)
        return True

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        """A worker runs and jobs come; at the end all of them have been done."""
        async with self.app:
            worker = self.app.worker(concurrency=10, lease=LEASE, poll=0.5, reclaim_every=1.0)
            working, sending = asyncio.create_task(worker.run()), asyncio.create_task(self.send())
            yield
            self._over = True
            await sending
            async with asyncio.timeout(60):
                while len(self.runs) < len(self.sent):  # noqa: ASYNC110 - the worker has no other word for it
                    await asyncio.sleep(0.05)
                worker.stop()
                await working

    async def check(self, straight: str) -> None:
        async with Tidemill(straight) as outside:
            page = await outside.store.find(Filter(), limit=1_000_000)
            wrong = await outside.store.check()
        assert sorted(job.id for job in page.jobs) == sorted(self.sent), (
            "each job once, however often it was sent"
        )
        assert {(job.state, job.crashes, job.attempts) for job in page.jobs} == {(State.DONE, 0, 1)}
        assert set(self.runs.values()) == {1}
        assert self.longest < DEADLINE + 1, "a call was neither answered nor refused in time"
        assert wrong == ()


@pytest.mark.timeout(120 + 20 * ROUNDS)
async def test_faults_under_load(network: Network) -> None:
    load = Load(network.url)
    async with load.under_way():
        for _ in range(ROUNDS):
            for fault in network.faults():
                before = len(load.sent)
                await fault()
                while len(load.sent) < before + 20:  # noqa: ASYNC110 - it goes on by itself, or never
                    await asyncio.sleep(0.01)
    await load.check(network.straight)
    assert network.cuts == 2 * ROUNDS


@pytest.mark.timeout(120)
async def test_half_open_connections_under_load(network: Network) -> None:
    load = Load(network.url)
    async with load.under_way():
        before = len(load.sent)
        await network.forget()
        while len(load.sent) < before + 20:  # noqa: ASYNC110 - it goes on by itself, or never
            await asyncio.sleep(0.01)
    await load.check(network.straight)
