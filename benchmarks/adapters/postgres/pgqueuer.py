"""PgQueuer: jobs claimed in batches, outcomes written in batches."""

from __future__ import annotations

import json
import logging

import asyncpg
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job

from benchmarks.adapters.base import AsyncAdapter, split_jobs
from benchmarks.start_log import StartLogRow

BATCH = 1_000
CONNECTIONS = 10


class PgQueuerQueue(AsyncAdapter):
    settings = (
        f"AsyncpgPoolDriver, {CONNECTIONS} connections; uvloop; batch_size={BATCH}, durable (its default)"
    )
    acknowledges = "moves the job to its log after it ran; a dead worker's jobs run again after 30 s"

    async def connect(self, url: str) -> None:
        logging.disable(logging.WARNING)
        self._pool = await asyncpg.create_pool(url, min_size=2, max_size=CONNECTIONS)
        self._queries = Queries(AsyncpgPoolDriver(self._pool))
        if not await self._queries.has_table("pgqueuer"):
            await self._queries.install()

    async def send(self, sent: float, text: str = "") -> None:
        await self._queries.enqueue("noop", _payload(sent, text))

    async def send_many(self, jobs: int, text: str = "") -> None:
        payload = _payload(0.0, text)
        for piece in split_jobs(jobs):
            await self._queries.enqueue(["noop"] * piece, [payload] * piece, [0] * piece)

    async def serve(self, row: StartLogRow) -> None:
        runner = PgQueuer(AsyncpgPoolDriver(self._pool))

        async def noop(job: Job) -> None:
            row(json.loads(job.payload or b"{}")["sent"])

        runner.entrypoint("noop")(noop)
        await runner.run(batch_size=BATCH)

    async def disconnect(self) -> None:
        await self._pool.close()


def _payload(sent: float, text: str) -> bytes:
    return json.dumps({"sent": sent, "text": text}).encode()
