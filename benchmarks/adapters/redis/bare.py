"""The ceilings of one job at a time: one command and its answer through redis-py, nothing around it."""

from __future__ import annotations

import redis
import redis.asyncio

from benchmarks.adapters.shapes import Blocking, OnLoop
from benchmarks.tally import Row

RECORD = b"x" * 200


class Blocked(Blocking):
    settings = "redis-py and hiredis, blocking: LPUSH of 200 bytes"
    acknowledges = "not a queue"

    def open(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)

    def send(self, sent: float, text: str = "") -> None:  # noqa: ARG002 - a record is a record
        self._client.lpush("bare", RECORD)

    def work(self, row: Row) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._client.close()


class Awaited(OnLoop):
    settings = "redis-py and hiredis on uvloop, awaited: LPUSH of 200 bytes"
    acknowledges = "not a queue"

    async def connect(self, url: str) -> None:
        self._client = redis.asyncio.Redis.from_url(url)

    async def send(self, sent: float, text: str = "") -> None:  # noqa: ARG002 - a record is a record
        await self._client.lpush("bare", RECORD)

    async def serve(self, row: Row) -> None:
        raise NotImplementedError

    async def disconnect(self) -> None:
        await self._client.aclose()
