"""Chancy, running handlers on its event loop."""

from __future__ import annotations

import logging

from chancy import Chancy, Queue, Worker, job

from benchmarks.adapters.shapes import OnLoop, pieces
from benchmarks.tally import Row

CONCURRENCY = 500

ROW: list[Row] = []
"""Jobs name their function; what it needs it finds here."""


async def _noop(*, sent: float, text: str) -> None:  # noqa: ARG001 - as it was sent
    for row in ROW:
        row(sent)


noop = job()(_noop)


class ChancyQueue(OnLoop):
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
        for piece in pieces(jobs):
            async for _ in self._chancy.push_many([one] * piece):
                pass

    async def serve(self, row: Row) -> None:
        ROW.append(row)
        async with Worker(self._chancy) as worker:
            await worker.wait_for_shutdown()

    async def disconnect(self) -> None:
        await self._chancy.__aexit__(None, None, None)
