"""What `bench` measures: jobs that do nothing, sent in three ways, then run by one worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from tidemill.app import Tidemill
from tidemill.client.task import Task
from tidemill.core.queues import Retention

TASK, QUEUE = "tidemill.bench", "tidemill-bench"
TOGETHER = 64
LONE_SHARE = 10
"""A lone enqueue waits for the disk each time: a tenth of the jobs says as much in less time."""

AT_ONCE = 1000
LOOK_EVERY = 0.1

Done = Callable[[int], None]


class Measured(msgspec.Struct, frozen=True):
    what: str
    jobs: int
    seconds: float
    per_second: float


class Bench:
    """`done` is told how many of twice `jobs` steps are over: each job is sent and run."""

    def __init__(self, app: Tidemill, jobs: int, done: Done) -> None:
        self._app, self._jobs, self._done = app, jobs, done
        self._over = 0
        app.queue(QUEUE, keep_done=Retention())
        self._task: Task[[], None] = app.task(name=TASK, queue=QUEUE)(_nothing)

    async def run(self) -> list[Measured]:
        lone = max(1, self._jobs // LONE_SHARE)
        together = (self._jobs - lone) // 2
        bulk = self._jobs - lone - together
        return [
            await self._timed("enqueue one by one", lone, self._one_by_one),
            await self._timed(f"enqueue {TOGETHER} at once", together, self._together),
            await self._timed("enqueue in bulk", bulk, self._in_bulk),
            await self._timed("run by one worker", self._jobs, self._drain),
        ]

    async def _timed(
        self, what: str, jobs: int, work: Callable[[int], Coroutine[Any, Any, None]]
    ) -> Measured:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await work(jobs)
        seconds = loop.time() - began
        return Measured(what, jobs, round(seconds, 4), round(jobs / seconds, 1))

    def _count(self, jobs: int) -> None:
        self._over += jobs
        self._done(self._over)

    async def _one_by_one(self, jobs: int) -> None:
        for _ in range(jobs):
            await self._task.enqueue()
            self._count(1)

    async def _together(self, jobs: int) -> None:
        for begin in range(0, jobs, TOGETHER):
            count = min(TOGETHER, jobs - begin)
            await asyncio.gather(*(self._task.enqueue() for _ in range(count)))
            self._count(count)

    async def _in_bulk(self, jobs: int) -> None:
        for begin in range(0, jobs, AT_ONCE):
            count = min(AT_ONCE, jobs - begin)
            await self._app.enqueue_many(self._task.job() for _ in range(count))
            self._count(count)

    async def _drain(self, _jobs: int) -> None:
        worker = self._app.worker(queues={QUEUE: 1}, concurrency=10, until_idle=True)
        running = asyncio.create_task(worker.run())
        before = self._over
        while not running.done():
            self._done(before + worker.stats.done)
            await asyncio.wait([running], timeout=LOOK_EVERY)
        await running


async def _nothing() -> None: ...
