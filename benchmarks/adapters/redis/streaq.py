"""streaq: streams, prefetched in batches."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from streaq import Worker

from benchmarks.adapters.base import AsyncAdapter, Started, ignore_start, split_jobs
from benchmarks.start_log import StartLogRow

CONCURRENCY = 16


class Streaq(AsyncAdapter):
    settings = (
        f"uvloop; concurrency={CONCURRENCY} and as many prefetched (its defaults), results dropped (ttl=0)"
    )
    acknowledges = "removes the job after it ran; a dead worker's jobs run again"

    async def connect(self, url: str) -> None:
        logging.disable(logging.WARNING)
        self._worker: Worker[None] = Worker(redis_url=url, concurrency=CONCURRENCY, handle_signals=False)
        self._started: Started = ignore_start
        self._registered = self._worker.task(name="noop", ttl=0)(self._noop)
        self._asked = asyncio.Event()
        self._connected = asyncio.create_task(self._hold())
        await self._asked.wait()

    async def _hold(self) -> None:
        """Holds the connection open in one task, because it belongs to the task that opened it."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._worker)
            self._asked.set()
            await asyncio.Event().wait()

    async def _noop(self, sent: float, text: str) -> None:  # noqa: ARG002 - sent as an argument
        self._started(sent)

    async def send(self, sent: float, text: str = "") -> None:
        await self._registered.enqueue(sent, text)

    async def send_many(self, jobs: int, text: str = "") -> None:
        for piece in split_jobs(jobs):
            await self._worker.enqueue_many([self._registered.enqueue(0.0, text) for _ in range(piece)])

    async def serve(self, row: StartLogRow) -> None:
        self._started = row
        self._connected.cancel()
        await asyncio.wait([self._connected])
        await self._worker.run_async()

    async def disconnect(self) -> None:
        self._connected.cancel()
        await asyncio.wait([self._connected])
