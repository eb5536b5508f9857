"""An application on every store, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tidemill import Tidemill
from tidemill.contract.store import Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.postgres import PostgresStore
from tidemill.stores.redis import RedisStore
from tidemill.stores.sqlite import SqliteStore
from tidemill.testing import ManualClock, SeededEntropy


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def made(kind: str, request: pytest.FixtureRequest, clock: ManualClock) -> Store:
    entropy, given = SeededEntropy(1), request.getfixturevalue
    if kind == "memory":
        return MemoryStore(clock=clock, entropy=entropy)
    if kind == "sqlite":
        return SqliteStore(str(given("tmp_path") / "jobs.db"), clock=clock, entropy=entropy)
    if kind == "postgres":
        return PostgresStore(given("prepared_postgres_url"), clock=clock, entropy=entropy)
    return RedisStore(given("redis_url"), prefix=given("redis_prefix"), clock=clock, entropy=entropy)


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
async def app(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[Tidemill]:
    app = Tidemill(store=made(request.param, request, clock), clock=clock, entropy=SeededEntropy(1))

    @app.task(name="refresh")
    async def refresh(feed: int) -> None: ...

    @app.task(name="sweep", queue="night", priority=7)
    async def sweep(deep: bool = False) -> None: ...

    async with app:
        yield app
