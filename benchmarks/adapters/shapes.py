"""What adapters have in common: some libraries block, the others run on an event loop."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import uvloop

from benchmarks.adapters.threads import together
from benchmarks.tally import Row

AT_ONCE = 1_000
"""Jobs in one call of a bulk operation, unless a library says what it likes best."""

PRODUCERS = 16
"""Threads or tasks that fill a queue where there is no bulk operation; this is not measured."""


Started = Callable[[float], None]


def nobody(_: float) -> None:
    """Whom a handler tells that it started, in a process that only sends."""


class Blocking(ABC):
    settings: str
    acknowledges: str

    @abstractmethod
    def open(self, url: str) -> None: ...

    @abstractmethod
    def send(self, sent: float, text: str = "") -> None: ...

    @abstractmethod
    def work(self, row: Row) -> None: ...

    def enqueue_each(self, jobs: int) -> None:
        for _ in range(jobs):
            self.send(0.0)

    def enqueue_together(self, jobs: int, producers: int) -> None:
        together(jobs, producers, lambda: self.send(0.0))

    def enqueue_bulk(self, jobs: int) -> None:
        raise NotImplementedError

    def preload(self, jobs: int, text: str = "") -> None:
        for _ in range(jobs):
            self.send(0.0, text)

    def send_paced(self, gaps: Sequence[float]) -> None:
        due = time.monotonic()
        for gap in gaps:
            due += gap
            time.sleep(max(0.0, due - time.monotonic()))
            self.send(time.monotonic())

    def close(self) -> None:  # noqa: B027 - for those who would complain about being left open
        """The process ends after this."""


class OnLoop(ABC):
    settings: str
    acknowledges: str

    def open(self, url: str) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._runner.get_loop()
        self.run(self.connect(url))

    def run(self, what: Coroutine[Any, Any, None]) -> None:
        self._runner.run(what)

    @abstractmethod
    async def connect(self, url: str) -> None: ...

    @abstractmethod
    async def send(self, sent: float, text: str = "") -> None: ...

    @abstractmethod
    async def serve(self, row: Row) -> None: ...

    async def disconnect(self) -> None:  # noqa: B027 - as `close`
        """What would complain about being left open is closed here."""

    async def send_many(self, jobs: int, text: str = "") -> None:
        """One bulk operation, or several at once where there is none."""

        async def produce() -> None:
            for _ in range(jobs // PRODUCERS):
                await self.send(0.0, text)

        await asyncio.gather(*(produce() for _ in range(PRODUCERS)))
        for _ in range(jobs % PRODUCERS):
            await self.send(0.0, text)

    def work(self, row: Row) -> None:
        self.run(self.serve(row))

    def preload(self, jobs: int, text: str = "") -> None:
        self.run(self.send_many(jobs, text))

    def enqueue_bulk(self, jobs: int) -> None:
        self.run(self.send_many(jobs))

    def enqueue_each(self, jobs: int) -> None:
        async def each() -> None:
            for _ in range(jobs):
                await self.send(0.0)

        self.run(each())

    def enqueue_together(self, jobs: int, producers: int) -> None:
        async def produce() -> None:
            for _ in range(jobs // producers):
                await self.send(0.0)

        async def all_of_them() -> None:
            await asyncio.gather(*(produce() for _ in range(producers)))

        self.run(all_of_them())

    def send_paced(self, gaps: Sequence[float]) -> None:
        async def paced() -> None:
            due = time.monotonic()
            for gap in gaps:
                due += gap
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await self.send(time.monotonic())

        self.run(paced())

    def close(self) -> None:
        self.run(self.disconnect())
        self._runner.close()


def pieces(jobs: int, size: int = AT_ONCE) -> list[int]:
    """So many jobs, in calls of `size`."""
    return [min(size, jobs - done) for done in range(0, jobs, size)]
