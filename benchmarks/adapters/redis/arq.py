"""ARQ: it polls a sorted set, so the poll interval determines its speed."""

from __future__ import annotations

import logging
from typing import Any

from arq import create_pool, func
from arq.connections import RedisSettings
from arq.worker import Worker

from benchmarks.adapters.base import AsyncAdapter
from benchmarks.start_log import StartLogRow

MAX_JOBS = 100
POLL = 0.01


class Arq(AsyncAdapter):
    settings = f"uvloop; max_jobs={MAX_JOBS}, poll_delay={POLL} s, keep_result=0, log_results off"
    acknowledges = "removes the job after it ran; a dead worker's jobs run again"

    async def connect(self, url: str) -> None:
        logging.disable(logging.WARNING)
        self._pool = await create_pool(RedisSettings.from_dsn(url))

    async def send(self, sent: float, text: str = "") -> None:
        await self._pool.enqueue_job("noop", sent, text)

    async def serve(self, row: StartLogRow) -> None:
        async def noop(_: dict[Any, Any], sent: float, text: str) -> None:  # noqa: ARG001 - sent as an argument
            row(sent)

        worker = Worker(
            [func(noop, name="noop")],
            redis_pool=self._pool,
            max_jobs=MAX_JOBS,
            poll_delay=POLL,
            keep_result=0,
            log_results=False,
            handle_signals=False,
        )
        await worker.async_run()

    async def disconnect(self) -> None:
        await self._pool.aclose()
