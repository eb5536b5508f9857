"""The Redis store fulfils the contracts."""

from __future__ import annotations

import pytest
import redis.asyncio
from tests.servers.redis import Redis

from tidemill.clock import Clock, Entropy
from tidemill.contract.store import Store
from tidemill.stores.redis import RedisStore
from tidemill.testing.conformance import *  # noqa: F403 - the suite is meant to be taken whole
from tidemill.testing.conformance.fixtures import Arrive, MakeStore
from tidemill.testing.conformance.lockstep import run_lockstep


@pytest.fixture
def make_store(redis_url: str, redis_prefix: str) -> MakeStore:
    """Makes a store with its own prefix; a key without the prefix fails the test."""
    return lambda clock, entropy: RedisStore(redis_url, prefix=redis_prefix, clock=clock, entropy=entropy)


def arriving(url: str, prefix: str) -> Arrive:
    async def arrive(_: Store, job: str, task: str, payload: bytes, options: bytes) -> None:
        """Inserts an arrival as a program without this library does."""
        async with redis.asyncio.Redis.from_url(url) as outsider:
            fields = {"id": job, "task": task, "payload": payload, "options": options}
            await outsider.xadd(f"{{{prefix}}}:arrivals", fields)  # type: ignore[arg-type]

    return arrive


@pytest.fixture
def arrive(redis_url: str, redis_prefix: str) -> Arrive:
    return arriving(redis_url, redis_prefix)


def test_lockstep_with_memory(redis_server: Redis, redis_url: str) -> None:
    """The Redis store returns and shows the same as the memory store."""

    def empty(clock: Clock, entropy: Entropy) -> RedisStore:
        with redis_server.client() as client:
            client.flushall()
        return RedisStore(redis_url, clock=clock, entropy=entropy)

    run_lockstep(empty, arriving(redis_url, "tidemill"))
