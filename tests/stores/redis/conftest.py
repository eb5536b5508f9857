"""A shard per test: a store in virtual time on it, and handles below the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.servers.redis import redis_programs
from tidemill.clock import Clock
from tidemill.stores.redis import RedisStore
from tidemill.stores.redis.address import parse_url
from tidemill.stores.redis.handle import RedisHandle
from tidemill.stores.redis.shard import Shard
from tidemill.testing import ManualClock

Connect = Callable[..., Awaitable[RedisHandle]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs the tests of this folder on every installed server, because messages and memory use differ."""
    if "redis_server" in metafunc.fixturenames and len(programs := redis_programs()) > 1:
        names = [program.name for program in programs]
        metafunc.parametrize("redis_server", programs, ids=names, indirect=True, scope="session")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(redis_url: str, redis_prefix: str, clock: ManualClock) -> AsyncIterator[RedisStore]:
    opened = await RedisStore(redis_url, prefix=redis_prefix, clock=clock).open()
    yield opened
    await opened.close()


@pytest.fixture
async def connect(redis_url: str, redis_prefix: str) -> AsyncIterator[Connect]:
    """Opens handles, and closes them after the test."""
    opened: list[RedisHandle] = []

    async def connect(
        url: str = redis_url, *, clock: Clock | None = None, skew: Callable[[], float] | None = None
    ) -> RedisHandle:
        handle = RedisHandle(parse_url(url, redis_prefix), clock, skew)
        opened.append(handle)
        await handle.open()
        return handle

    yield connect
    for handle in opened:
        await handle.close()


@pytest.fixture
async def handle(connect: Connect) -> RedisHandle:
    return await connect()


@pytest.fixture
def shard(handle: RedisHandle) -> Shard:
    return handle.shard
