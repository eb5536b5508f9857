"""SAQ, whatever it keeps its jobs in."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from saq import Queue, Worker

from benchmarks.adapters.shapes import OnLoop
from benchmarks.tally import Row

CONCURRENCY = 50
FORGOTTEN = -1


class Saq(OnLoop):
    settings = f"uvloop; concurrency={CONCURRENCY}"
    _queue: Queue

    @abstractmethod
    async def connect(self, url: str) -> None: ...

    async def send(self, sent: float, text: str = "") -> None:
        await self._queue.enqueue("noop", ttl=FORGOTTEN, sent=sent, text=text)

    async def serve(self, row: Row) -> None:
        async def noop(_: Any, *, sent: float, text: str) -> None:  # noqa: ARG001 - as it was sent
            row(sent)

        worker: Worker[Any] = Worker(self._queue, [("noop", noop)], concurrency=CONCURRENCY)
        await worker.start()

    async def disconnect(self) -> None:
        await self._queue.disconnect()
