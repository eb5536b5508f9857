"""Chancy, running handlers on its event loop."""

from __future__ import annotations

import logging

from chancy import Chancy, Queue, Worker, job

from benchmarks.adapters.base import AsyncAdapter, split_jobs
from benchmarks.start_log import StartLogRow

CONCURRENCY = 500

ROW: list[StartLogRow] = []
"""The start log row of this process. Jobs name a global function, which finds the row here."""


async def _noop(*, sent: float, text: str) -> None:  # noqa: ARG001 - sent as an argument
    for row in ROW:
        row(sent)


noop = job()(_noop)


class ChancyQueue(AsyncAdapter):
    settings = f"AsyncExecutor; uvloop; concurrency={CONCURRENCY}, eager_polling"
    acknowledges = "marks the job done after it ran; a dead worker's jobs run again with its recovery plugin"

    async def connect(self, url: str) -> None:
        logging.disable(logging.WARNING)
        self._chancy = Chancy(url)
        await self._chancy.__aenter__()
        await self._chancy.migrate()
        await self._chancy.declare(
            Queue(
                "default",
                concurrency=CONCURRENCY,
                executor="chancy.executors.asyncex.AsyncExecutor",
                eager_polling=True,
            )
        )

    async def send(self, sent: float, text: str = "") -> None:
        await self._chancy.push(noop.job.with_kwargs(sent=sent, text=text))

    async def send_many(self, jobs: int, text: str = "") -> None:
        one = noop.job.with_kwargs(sent=0.0, text=text)
        for piece in split_jobs(jobs):
            async for _ in self._chancy.push_many([one] * piece):
                pass

    async def serve(self, row: StartLogRow) -> None:
        ROW.append(row)
        async with Worker(self._chancy) as worker:
            await worker.wait_for_shutdown()

    async def disconnect(self) -> None:
        await self._chancy.__aexit__(None, None, None)
