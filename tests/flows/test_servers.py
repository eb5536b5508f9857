"""Flows of an application on a real server, run by its workers (I17, V10)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tidemill import Tidemill
from tidemill.contract.store import Store
from tidemill.core.documents import DocumentKind
from tidemill.stores.postgres import PostgresStore
from tidemill.stores.redis import RedisStore

WIDTH = 60


class Program:
    """An application and the arguments of its steps."""

    def __init__(self, store: Store, ran: Counter[str]) -> None:
        self.app = Tidemill(store=store)

        @self.app.task(name="count", queue="steps")
        async def count(to: int) -> list[int]:
            ran["count"] += 1
            return list(range(to))

        @self.app.task(name="double", queue="steps")
        async def double(number: int) -> int:
            ran[f"double {number}"] += 1
            return 2 * number

        @self.app.task(name="total", queue="steps")
        async def total(numbers: list[int]) -> int:
            ran["total"] += 1
            return sum(numbers)

        self.count, self.double, self.total = count, double, total

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with self.app:
            worker = self.app.worker(heartbeat_thread=False, isolation=False)
            task = asyncio.create_task(worker.run())
            await worker.started.wait()
            yield
            worker.stop()
            await task


@pytest.fixture
def ran() -> Counter[str]:
    return Counter()


@pytest.fixture(params=["redis", "postgres"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "postgres":
        return PostgresStore(request.getfixturevalue("prepared_postgres_url"))
    url, prefix = (request.getfixturevalue(name) for name in ("redis_url", "redis_prefix"))
    return RedisStore(url, prefix=prefix)


async def test_i17_a_fan_out_by_two_workers_runs_every_step_once(store: Store, ran: Counter[str]) -> None:
    one, other = Program(store, ran), Program(store.new_handle(), ran)
    async with one.working(), other.working():
        flow = one.app.flow("sums", key="a")
        numbers = flow.add(one.count, to=WIDTH)
        flow.add(one.total, numbers=flow.map(one.double, number=numbers))
        handle = await flow.enqueue()
        assert await handle.result(timeout=30) == sum(2 * number for number in range(WIDTH))
        assert (await flow.enqueue()).existing
    assert (len(ran), set(ran.values())) == (WIDTH + 2, {1})
    await store.open()
    assert (await store.worklist(DocumentKind.FLOW)).work_items == ()
    assert await store.check() == ()
    await store.close()
