"""Fixtures: one server of each kind per test process, started by the first test that needs it.

Tests are isolated: each has a separate Redis prefix, and the PostgreSQL database is emptied after each
test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.servers.certificates import Tls
    from tests.servers.postgres import Postgres
    from tests.servers.prepared_database import PreparedDatabase
    from tests.servers.redis import Redis
    from tests.servers.redis_cluster import RedisCluster
    from tests.servers.redis_keys import RedisKeys


_numbers = count(1)


@pytest.fixture(scope="session")
def redis_server(request: pytest.FixtureRequest) -> Iterator[Redis]:
    """The shared server. A test that kills, pauses or configures a server starts a separate one.

    A folder of tests can select the program by a parameter: see tests/stores/redis/conftest.py."""
    from tests.servers.redis import Redis

    with Redis(program=getattr(request, "param", None)) as server:
        yield server


@pytest.fixture
def redis_keys(redis_server: Redis) -> Iterator[RedisKeys]:
    """The keys in Redis. Fails a test that leaves keys outside its prefix."""
    from tests.servers.redis_keys import RedisKeys

    keys = RedisKeys(redis_server)
    yield keys
    strays = keys.strays()
    keys.clear()
    if strays:
        pytest.fail(f"keys outside the prefix {keys.prefix!r}: {', '.join(strays[:20])}")


@pytest.fixture
def redis_prefix(redis_keys: RedisKeys) -> str:
    """A prefix of this test only. Without this fixture, a test's keys must be under the default prefix."""
    keys_prefix = f"t{next(_numbers)}"
    redis_keys.prefix = keys_prefix
    return keys_prefix


@pytest.fixture
def redis_url(redis_server: Redis, redis_keys: RedisKeys) -> str:
    return redis_server.url


@pytest.fixture
async def redis_tls(redis_server: Redis, redis_keys: RedisKeys, tmp_path: Path) -> AsyncIterator[Tls]:
    """The shared server behind TLS."""
    from tests.servers.certificates import Certificate, Tls
    from tests.servers.proxy import Proxy

    certificate = Certificate(tmp_path)
    async with Proxy(redis_server.port, tls=certificate.context()) as proxy:
        yield Tls(f"rediss://127.0.0.1:{proxy.port}/0", certificate.path, proxy)


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """A shared cluster of three nodes. It is never emptied, so each test uses a separate prefix."""
    from tests.servers.redis_cluster import RedisCluster

    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """The shared server, like `redis_server`. It flushes nothing to disk."""
    from tests.servers.postgres import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    """An empty database."""
    yield postgres_server.url
    postgres_server.empty()


@pytest.fixture(scope="session")
def prepared_postgres(postgres_server: Postgres) -> Iterator[PreparedDatabase]:
    """A shared database with a store's tables; each user resets it, as `prepared_postgres_url` does."""
    from tests.servers.prepared_database import PreparedDatabase
    from tidemill.stores.postgres import PostgresStore
    from tidemill.testing.clocks import ManualClock

    rewinding = PreparedDatabase(postgres_server)

    async def prepare() -> None:
        await (await PostgresStore(rewinding.url, clock=ManualClock()).open()).close()

    # Runs in a separate thread with a separate event loop.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, prepare()).result()
    rewinding.remember()
    yield rewinding
    rewinding.close()


@pytest.fixture
def prepared_postgres_url(prepared_postgres: PreparedDatabase) -> Iterator[str]:
    """A database with a store's empty tables in the default schema. For tests that open a store, it is ten
    times faster than `postgres_url`."""
    yield prepared_postgres.url
    prepared_postgres.rewind()
