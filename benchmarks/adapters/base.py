"""Base classes of adapters: blocking libraries and libraries on an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import uvloop

from benchmarks.start_log import StartLogRow


def run_in_threads(jobs: int, producers: int, send: Callable[[], None]) -> None:
    """Divides `jobs` evenly among `producers` threads. Raises the error of any thread."""
    errors: list[BaseException] = []

    def produce() -> None:
        try:
            for _ in range(jobs // producers):
                send()
        except Exception as error:  # noqa: BLE001 - raised in the caller below
            errors.append(error)

    threads = [threading.Thread(target=produce) for _ in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


JOBS_PER_BULK = 1_000
"""Jobs per bulk call, unless the library recommends another number."""

PRODUCERS = 16
"""Threads or tasks that fill a queue without a bulk operation; not measured."""


Started = Callable[[float], None]


def ignore_start(_: float) -> None:
    """Replaces the start record in a process that only sends."""


class BlockingAdapter(ABC):
    settings: str
    acknowledges: str

    @abstractmethod
    def open(self, url: str) -> None: ...

    @abstractmethod
    def send(self, sent: float, text: str = "") -> None: ...

    @abstractmethod
    def work(self, row: StartLogRow) -> None: ...

    def enqueue_each(self, jobs: int) -> None:
        for _ in range(jobs):
            self.send(0.0)

    def enqueue_together(self, jobs: int, producers: int) -> None:
        run_in_threads(jobs, producers, lambda: self.send(0.0))

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

    def close(self) -> None:  # noqa: B027 - only for libraries that warn about open connections
        """Closes the connections. The process ends afterwards."""


class AsyncAdapter(ABC):
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
    async def serve(self, row: StartLogRow) -> None: ...

    async def disconnect(self) -> None:  # noqa: B027 - as `close`
        """Closes connections, for libraries that warn about open ones."""

    async def send_many(self, jobs: int, text: str = "") -> None:
        """Sends jobs in one bulk call, or concurrently if the library has no bulk operation."""

        async def produce() -> None:
            for _ in range(jobs // PRODUCERS):
                await self.send(0.0, text)

        await asyncio.gather(*(produce() for _ in range(PRODUCERS)))
        for _ in range(jobs % PRODUCERS):
            await self.send(0.0, text)

    def work(self, row: StartLogRow) -> None:
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


def split_jobs(jobs: int, size: int = JOBS_PER_BULK) -> list[int]:
    """Splits a number of jobs into calls of `size`."""
    return [min(size, jobs - done) for done in range(0, jobs, size)]
