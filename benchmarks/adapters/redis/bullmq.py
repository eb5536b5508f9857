"""BullMQ for Python: the same Lua scripts as on Node, with another client."""

from __future__ import annotations

import asyncio
from typing import Any

from bullmq import Queue, Worker

from benchmarks.adapters.base import AsyncAdapter, split_jobs
from benchmarks.start_log import StartLogRow

CONCURRENCY = 20
REMOVAL_OPTIONS = {"removeOnComplete": True}


class BullMQPython(AsyncAdapter):
    settings = f"uvloop; concurrency={CONCURRENCY}, removeOnComplete"
    acknowledges = "removes the job after it ran; a dead worker's jobs run again"

    async def connect(self, url: str) -> None:
        self._url = url
        self._queue = Queue("bench", {"connection": url})

    async def send(self, sent: float, text: str = "") -> None:
        await self._queue.add("noop", {"sent": sent, "text": text}, REMOVAL_OPTIONS)

    async def send_many(self, jobs: int, text: str = "") -> None:
        data = {"sent": 0.0, "text": text}
        for piece in split_jobs(jobs):
            await self._queue.addBulk(
                [{"name": "noop", "data": data, "opts": REMOVAL_OPTIONS} for _ in range(piece)]
            )

    async def serve(self, row: StartLogRow) -> None:
        async def noop(job: Any, _: str) -> None:
            row(job.data["sent"])

        self._worker = Worker("bench", noop, {"connection": self._url, "concurrency": CONCURRENCY})
        await asyncio.Event().wait()

    async def disconnect(self) -> None:
        await self._queue.close()
