"""The fixtures: one server of each kind per test process, started by the first test that asks.

Tests do not meet: each has its own Redis prefix, and the PostgreSQL database is emptied after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # a run without these servers does not wait for their clients to be imported
    from tests.servers.certificates import Tls
    from tests.servers.keys import Keys
    from tests.servers.postgres import Postgres
    from tests.servers.redis import Redis
    from tests.servers.redis_cluster import RedisCluster
    from tests.servers.rewinding import Rewinding

_numbers = count(1)


@pytest.fixture(scope="session")
def redis_server(request: pytest.FixtureRequest) -> Iterator[Redis]:
    """Shared: whoever kills, pauses or configures a server starts one of their own.

    A folder of tests can name the program in its parameter: see tests/stores/redis/conftest.py.
    """
    from tests.servers.redis import Redis

    with Redis(program=getattr(request, "param", None)) as server:
        yield server


@pytest.fixture
def redis_keys(redis_server: Redis) -> Iterator[Keys]:
    """What lies in Redis. Fails the test that left keys outside its prefix."""
    from tests.servers.keys import Keys

    keys = Keys(redis_server)
    yield keys
    strays = keys.strays()
    keys.clear()
    if strays:
        pytest.fail(f"keys outside the prefix {keys.prefix!r}: {', '.join(strays[:20])}")


@pytest.fixture
def redis_prefix(redis_keys: Keys) -> str:
    """A prefix that no other test has. Without it a test's keys are to lie under the default one."""
    keys_prefix = f"t{next(_numbers)}"
    redis_keys.prefix = keys_prefix
    return keys_prefix


@pytest.fixture
def redis_url(redis_server: Redis, redis_keys: Keys) -> str:
    return redis_server.url


@pytest.fixture
async def redis_tls(redis_server: Redis, redis_keys: Keys, tmp_path: Path) -> AsyncIterator[Tls]:
    """The same server behind TLS."""
    from tests.servers.certificates import Certificate, Tls
    from tests.servers.proxy import Proxy

    certificate = Certificate(tmp_path)
    async with Proxy(redis_server.port, tls=certificate.context()) as proxy:
        yield Tls(f"rediss://127.0.0.1:{proxy.port}/0", certificate.path, proxy)


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """Three nodes, shared. Nobody empties them: a test takes a prefix of its own."""
    from tests.servers.redis_cluster import RedisCluster

    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """Shared, as `redis_server`. It flushes nothing to disk."""
    from tests.servers.postgres import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    """A database with nothing in it."""
    yield postgres_server.url
    postgres_server.empty()


@pytest.fixture(scope="session")
def prepared_postgres(postgres_server: Postgres) -> Iterator[Rewinding]:
    """Shared: whoever uses it puts it back, as `prepared_postgres_url` does."""
    from tests.servers.rewinding import Rewinding
    from tidemill.stores.postgres import PostgresStore
    from tidemill.testing.manual import ManualClock

    rewinding = Rewinding(postgres_server)

    async def prepare() -> None:
        await (await PostgresStore(rewinding.url, clock=ManualClock()).open()).close()

    # In a thread of its own, whose event loop is nobody else's.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, prepare()).result()
    rewinding.remember()
    yield rewinding
    rewinding.close()


@pytest.fixture
def prepared_postgres_url(prepared_postgres: Rewinding) -> Iterator[str]:
    """A database in which a store's tables are, in the default schema, with nothing in them: ten times
    faster than `postgres_url` for a test that opens a store anyway."""
    yield prepared_postgres.url
    prepared_postgres.rewind()
