"""Tidemill as its documentation starts it: default settings, the public API."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
import uvloop

from benchmarks.adapters import Started
from tidemill import Task, Tidemill

_STORE = (
    "WAL, synchronous=FULL (its default); worker: 10 slots, timeouts, context and retention on (its defaults)"
)


class Sync:
    """Called as a program without an event loop calls it; the worker has a thread's loop."""

    settings = f"enqueue_sync; {_STORE}"
    acknowledges = "marks the job done after it ran; a dead worker's jobs run again"

    def open(self, folder: Path) -> None:
        # stdout carries the figures.
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        self.app = Tidemill(f"sqlite:///{folder}/tidemill.db")
        self.started: Started = lambda _: None
        self.observe: Started | None = None
        self.noop = self._register()

    def _register(self) -> Task[[float], None]:
        @self.app.task(name="noop")
        async def noop(sent: float) -> None:
            self.started(sent)

        return noop

    def preload(self, jobs: int) -> None:
        self.app.enqueue_many_sync(self.noop.job(0.0) for _ in range(jobs))

    def enqueue_each(self, jobs: int) -> None:
        for _ in range(jobs):
            self.noop.enqueue_sync(0.0)

    def enqueue_together(self, jobs: int, producers: int) -> None:
        raise NotImplementedError

    def send(self, sent: float) -> None:
        self.noop.enqueue_sync(sent)

    def drain(self, jobs: int) -> None:
        """Ends when the last outcome is on disk and the worker has stopped."""
        left = jobs

        async def run() -> None:
            async with self.app:
                worker = self.app.worker()

                def count(sent: float) -> None:
                    nonlocal left
                    left -= 1
                    if self.observe is not None:
                        self.observe(sent)
                    if not left:
                        worker.stop()

                self.started = count
                await worker.run()

        uvloop.run(run())

    @contextmanager
    def serve(self, started: Started, **options: Any) -> Iterator[None]:
        self.started = started
        ready = threading.Event()
        stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

        async def run() -> None:
            asked = asyncio.Event()
            stop.append((asyncio.get_running_loop(), asked))
            async with self.app:
                worker = self.app.worker(**options)
                running = asyncio.create_task(worker.run())
                ready.set()
                await asked.wait()
                worker.stop()
                await running

        thread = threading.Thread(target=lambda: uvloop.run(run()))
        thread.start()
        ready.wait()
        time.sleep(0.2)  # until it has looked once and waits
        try:
            yield
        finally:
            loop, asked = stop[0]
            loop.call_soon_threadsafe(asked.set)
            thread.join()

    def close(self) -> None:
        self.app.close_sync()


class Async(Sync):
    """Awaited on an event loop."""

    settings = f"await enqueue; {_STORE}"

    def enqueue_each(self, jobs: int) -> None:
        async def run() -> None:
            async with self.app:
                for _ in range(jobs):
                    await self.noop.enqueue(0.0)

        uvloop.run(run())

    def enqueue_together(self, jobs: int, producers: int) -> None:
        async def produce() -> None:
            for _ in range(jobs // producers):
                await self.noop.enqueue(0.0)

        async def run() -> None:
            async with self.app:
                await asyncio.gather(*(produce() for _ in range(producers)))

        uvloop.run(run())

    def enqueue_bulk(self, jobs: int) -> None:
        async def run() -> None:
            async with self.app:
                await self.app.enqueue_many(self.noop.job(0.0) for _ in range(jobs))

        uvloop.run(run())
