"""Enqueues and runs jobs during a fault, and checks each job afterwards."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tidemill import Filter, State, Tidemill
from tidemill.errors import StoreError

DEADLINE = 5.0
LEASE = 60.0
"""Longer than any fault: a job that runs twice within it was duplicated."""


class Traffic:
    """Sends jobs until it is stopped, repeats each until it is accepted, and counts the runs of each job."""

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

        self.work = work

    async def send(self) -> None:
        while not self._over:
            request = self.work.job(len(self.sent))
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

    async def wait_for_progress(self) -> None:
        """Waits until more jobs are accepted; the store recovers by itself, or never."""
        before = len(self.sent)
        while len(self.sent) < before + 20:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        """Runs a worker and sends jobs; waits at the end until all are done."""
        async with self.app:
            worker = self.app.worker(concurrency=10, lease=LEASE, poll=0.5, reclaim_every=1.0)
            working, sending = asyncio.create_task(worker.run()), asyncio.create_task(self.send())
            yield
            self._over = True
            await sending
            async with asyncio.timeout(60):
                while len(self.runs) < len(self.sent):  # noqa: ASYNC110 - the worker has no event for it
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
