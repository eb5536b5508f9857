"""SAQ on any store."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from saq import Queue, Worker

from benchmarks.adapters.base import AsyncAdapter
from benchmarks.start_log import StartLogRow

CONCURRENCY = 50
FORGOTTEN = -1


class Saq(AsyncAdapter):
    settings = f"uvloop; concurrency={CONCURRENCY}"
    _queue: Queue

    @abstractmethod
    async def connect(self, url: str) -> None: ...

    async def send(self, sent: float, text: str = "") -> None:
        await self._queue.enqueue("noop", ttl=FORGOTTEN, sent=sent, text=text)

    async def serve(self, row: StartLogRow) -> None:
        async def noop(_: Any, *, sent: float, text: str) -> None:  # noqa: ARG001 - sent as an argument
            row(sent)

        worker: Worker[Any] = Worker(self._queue, [("noop", noop)], concurrency=CONCURRENCY)
        await worker.start()

    async def disconnect(self) -> None:
        await self._queue.disconnect()
