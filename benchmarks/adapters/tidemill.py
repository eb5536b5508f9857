"""Tidemill as its documentation starts it: default settings and the public API; only the URL differs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import structlog
import uvloop

from benchmarks.adapters.base import AsyncAdapter, BlockingAdapter, Started, ignore_start
from benchmarks.start_log import StartLogRow
from tidemill import Task, Tidemill
from tidemill.worker import Worker

_DEFAULTS = "everything as it comes: 10 slots, timeouts, context and retention on"
_ACKNOWLEDGES = "marks the job done after it ran; a dead worker's jobs run again"


class TidemillProgram:
    """An application with one task, as a user would write it."""

    def __init__(self, url: str) -> None:
        # The figures go to stdout.
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        self.app = Tidemill(url if "://" in url else f"sqlite:///{url}/tidemill.db")
        self.started: Started = ignore_start
        self.noop = self._registered()

    def _registered(self) -> Task[[float, str], None]:
        @self.app.task(name="noop")
        async def noop(sent: float, text: str) -> None:  # noqa: ARG001 - sent as an argument
            self.started(sent)

        return noop

    async def work(self, started: Started) -> None:
        self.started = started
        async with self.app:
            await self.app.worker().run()

    async def drain(self, jobs: int, started: Started) -> None:
        """Runs all jobs. Returns after the last outcome is stored and the worker has stopped."""
        async with self.app:
            worker = self.app.worker()
            self.started = _counted(jobs, started, worker)
            await worker.run()


def _counted(jobs: int, started: Started, worker: Worker) -> Started:
    left = jobs

    def count(sent: float) -> None:
        nonlocal left
        left -= 1
        started(sent)
        if not left:
            worker.stop()

    return count


class TidemillSync(BlockingAdapter):
    """The sync API, for programs without an event loop."""

    settings = f"enqueue_sync; {_DEFAULTS}"
    acknowledges = _ACKNOWLEDGES

    def open(self, url: str) -> None:
        self.program = TidemillProgram(url)

    def send(self, sent: float, text: str = "") -> None:
        self.program.noop.enqueue_sync(sent, text)

    def enqueue_bulk(self, jobs: int) -> None:
        self.preload(jobs)

    def preload(self, jobs: int, text: str = "") -> None:
        self.program.app.enqueue_many_sync(self.program.noop.job(0.0, text) for _ in range(jobs))

    def work(self, row: StartLogRow) -> None:
        self.run(self.program.work(row))

    def run(self, what: Coroutine[Any, Any, None]) -> None:
        uvloop.run(what)

    def close(self) -> None:
        self.program.app.close_sync()


class TidemillAsync(AsyncAdapter):
    """The async API."""

    settings = f"await enqueue; {_DEFAULTS}"
    acknowledges = _ACKNOWLEDGES

    async def connect(self, url: str) -> None:
        self.program = TidemillProgram(url)
        self._open = AsyncExitStack()
        await self._open.enter_async_context(self.program.app)

    async def send(self, sent: float, text: str = "") -> None:
        await self.program.noop.enqueue(sent, text)

    async def send_many(self, jobs: int, text: str = "") -> None:
        await self.program.app.enqueue_many(self.program.noop.job(0.0, text) for _ in range(jobs))

    async def serve(self, row: StartLogRow) -> None:
        self.program.started = row
        await self.program.app.worker().run()

    async def disconnect(self) -> None:
        await self._open.aclose()
