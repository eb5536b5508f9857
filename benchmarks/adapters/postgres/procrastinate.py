"""Procrastinate."""

from __future__ import annotations

import logging

from procrastinate import App, PsycopgConnector

from benchmarks.adapters.base import AsyncAdapter, Started, ignore_start, split_jobs
from benchmarks.start_log import StartLogRow

CONCURRENCY = 20


class Procrastinate(AsyncAdapter):
    settings = f"PsycopgConnector; uvloop; concurrency={CONCURRENCY}, done jobs deleted"
    acknowledges = "deletes the job after it ran; a dead worker's jobs wait for a task of the user's"

    async def connect(self, url: str) -> None:
        logging.disable(logging.WARNING)
        self._app = App(connector=PsycopgConnector(conninfo=url, max_size=CONCURRENCY + 2))
        self._started: Started = ignore_start

        async def noop(sent: float, text: str) -> None:  # noqa: ARG001 - sent as an argument
            self._started(sent)

        self._noop = self._app.task(name="noop")(noop)
        await self._app.open_async()
        if not await self._app.check_connection_async():
            await self._app.schema_manager.apply_schema_async()

    async def send(self, sent: float, text: str = "") -> None:
        await self._noop.defer_async(sent=sent, text=text)

    async def send_many(self, jobs: int, text: str = "") -> None:
        for piece in split_jobs(jobs):
            await self._noop.batch_defer_async(*({"sent": 0.0, "text": text} for _ in range(piece)))

    async def serve(self, row: StartLogRow) -> None:
        self._started = row
        await self._app.run_worker_async(
            concurrency=CONCURRENCY, delete_jobs="successful", install_signal_handlers=False
        )

    async def disconnect(self) -> None:
        await self._app.close_async()
