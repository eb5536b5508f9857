"""The upper bounds for one job at a time: one command and its reply through redis-py."""

from __future__ import annotations

import redis
import redis.asyncio

from benchmarks.adapters.base import AsyncAdapter, BlockingAdapter
from benchmarks.start_log import StartLogRow

RECORD_BYTES = b"x" * 200


class RawRedisBlocking(BlockingAdapter):
    settings = "redis-py and hiredis, blocking: LPUSH of 200 bytes"
    acknowledges = "not a queue"

    def open(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)

    def send(self, sent: float, text: str = "") -> None:  # noqa: ARG002 - the record has a fixed size
        self._client.lpush("bare", RECORD_BYTES)

    def work(self, row: StartLogRow) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._client.close()


class RawRedisAsync(AsyncAdapter):
    settings = "redis-py and hiredis on uvloop, awaited: LPUSH of 200 bytes"
    acknowledges = "not a queue"

    async def connect(self, url: str) -> None:
        self._client = redis.asyncio.Redis.from_url(url)

    async def send(self, sent: float, text: str = "") -> None:  # noqa: ARG002 - the record has a fixed size
        await self._client.lpush("bare", RECORD_BYTES)

    async def serve(self, row: StartLogRow) -> None:
        raise NotImplementedError

    async def disconnect(self) -> None:
        await self._client.aclose()
