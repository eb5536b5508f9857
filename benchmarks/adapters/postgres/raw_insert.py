"""The upper bound for one job at a time: one prepared INSERT and its commit through asyncpg."""

from __future__ import annotations

import asyncpg

from benchmarks.adapters.base import AsyncAdapter
from benchmarks.start_log import StartLogRow

CREATE_TABLE_SQL = (
    "CREATE TABLE IF NOT EXISTS job (id text PRIMARY KEY, queue text, task text, payload bytea)"
)
INSERT_SQL = "INSERT INTO job VALUES ($1, 'default', 'noop', $2)"
RECORD = b'{"sent":0.0,"text":""}'
CONNECTIONS = 10


class RawPostgresAsync(AsyncAdapter):
    settings = f"asyncpg on uvloop: a prepared INSERT; {CONNECTIONS} connections"
    acknowledges = "not a queue"

    async def connect(self, url: str) -> None:
        self._pool = await asyncpg.create_pool(url, min_size=1, max_size=CONNECTIONS)
        await self._pool.execute(CREATE_TABLE_SQL)
        self._number = 0

    async def send(self, sent: float, text: str = "") -> None:  # noqa: ARG002 - the record has a fixed size
        self._number += 1
        await self._pool.execute(INSERT_SQL, f"{self._number:032x}", RECORD)

    async def serve(self, row: StartLogRow) -> None:
        raise NotImplementedError

    async def disconnect(self) -> None:
        await self._pool.close()
