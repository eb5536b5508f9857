"""Long reads of a Redis shard take several calls and find every job (R1, R2, R8, R10, J70)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis import Redis

from tidemill.core.filters import Filter
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.operator_changes import ReprioritiseJobs
from tidemill.core.pools import PoolSettings
from tidemill.core.states import State
from tidemill.stores.redis import RedisStore, find, pools, reader
from tidemill.testing.clocks import ManualClock, SeededEntropy
from tidemill.testing.conformance.fixtures import StoreDriver, ids, new_job

JOBS = 2500
"""More jobs than one call examines."""


@pytest.fixture
async def driver(redis_url: str) -> AsyncIterator[StoreDriver]:
    clock = ManualClock()
    store = await RedisStore(redis_url, clock=clock, entropy=SeededEntropy(1)).open()
    yield StoreDriver(store, clock)
    await store.close()


class ScriptCounter:
    """Counts the scripts that ran."""

    def __init__(self, url: str) -> None:
        self._server = Redis.from_url(url)
        self._server.config_resetstat()

    def count(self) -> int:
        found = self._server.info("commandstats").get("cmdstat_evalsha", {"calls": 0})
        self._server.close()
        return int(found["calls"])


async def test_r2_a_long_search_takes_several_calls(driver: StoreDriver, redis_url: str) -> None:
    """No call examines more than a thousand jobs, so that other clients get their turn."""
    await driver.add(*(f"job{number}" for number in range(JOBS)))
    scripts = ScriptCounter(redis_url)
    page = await driver.store.find(Filter(text="nothing like it"))
    assert (page.jobs, page.cursor) == ((), None)
    assert scripts.count() >= JOBS // 1000 + 1


async def test_r2_pages_return_every_job_once(driver: StoreDriver) -> None:
    """Jobs are inserted and deleted in between, and empty pages of the index are skipped."""
    await driver.add(*(f"job{number}" for number in range(JOBS)))
    seen: list[str] = []
    cursor: int | None = None
    while True:
        page = await driver.store.find(Filter(queue="q"), 300, cursor)
        seen += ids(page.jobs)
        await driver.add(f"late{len(seen)}")
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == [f"job{number}" for number in reversed(range(JOBS))]


async def test_r2_few_of_many_are_found_by_their_state(driver: StoreDriver, redis_url: str) -> None:
    await driver.add(*(f"job{number}" for number in range(JOBS)))
    taken = await driver.take(limit=3, shares=(("q", 3),))
    await driver.settle(taken[0])
    scripts = ScriptCounter(redis_url)
    found = await driver.store.find(Filter(states=(State.RUNNING, State.DONE)))
    assert ids(found.jobs) == ["job2", "job1", "job0"]
    assert scripts.count() <= 2, "one, and another if the server had to load the script"
    by_end = await driver.store.find(Filter(time="finished", since=0.0))
    assert ids(by_end.jobs) == ["job0"]


async def test_j70_an_amend_takes_the_oldest_jobs_first(driver: StoreDriver) -> None:
    await driver.add(*(f"job{number}" for number in range(JOBS)))
    changed = await driver.store.amend(Filter(id_prefix="job2"), ReprioritiseJobs(1), 3)
    assert changed.changed == ("job2", "job20", "job21")
    assert len((await driver.store.amend(Filter(), ReprioritiseJobs(2), 2 * JOBS)).changed) == JOBS


async def test_r8_r10_many_lanes_take_several_calls(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "DEMAND_LANES_PER_REQUEST", 7)
    monkeypatch.setattr(reader, "DEMAND_IDS_PER_REQUEST", 3)
    pool = PoolSettings(limits=(Limit.requests(2, per="minute"),), keyed=True)
    await driver.store.declare_pools({"site": pool})
    for host in range(20):
        needs = (Need("site", f"h{host:02}", {"requests": 1.0}),)
        await driver.add(
            *(new_job(f"{host}-{number}", needs=needs, priority=number % 2) for number in range(3))
        )
        driver.clock.advance(1.0)
    demand = await driver.store.demand()
    assert [(of.priority, of.jobs) for of in demand] == [(0, 2), (1, 1)] * 20
    assert {need.key for of in demand for need in of.needs} == {f"h{host:02}" for host in range(20)}
    backlog = await driver.store.backlog("q")
    assert backlog.oldest_ready == driver.clock.wall() - 20.0


async def test_p7_many_accounts_take_several_calls(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "ACCOUNTS_PER_REQUEST", 4)
    pool = PoolSettings(limits=(Limit.requests(2, per="minute"),), keyed=True)
    await driver.store.declare_pools({"site": pool, "other": pool})
    for host in range(10):
        await driver.store.close_pool("site", key=f"h{host}", by="me")
        await driver.store.close_pool("other", key=f"o{host}", by="me")
    for host in range(0, 10, 2):
        await driver.store.open_pool("site", key=f"h{host}")
    found = [(view.name, view.key) for view in await driver.store.pools()]
    assert found == [
        *(("other", key) for key in (None, *(f"o{host}" for host in range(10)))),
        *(("site", key) for key in (None, "h1", "h3", "h5", "h7", "h9")),
    ]


async def test_r1_large_jobs_take_several_calls(driver: StoreDriver, redis_url: str) -> None:
    """A reply of hundreds of megabytes would block the server and fill the memory of both sides."""
    text = "x" * 1024 * 1024
    await driver.add(*(new_job(f"job{number}", payload=text) for number in range(10)))
    scripts = ScriptCounter(redis_url)
    found = await driver.store.get([f"job{number}" for number in range(10)])
    assert [job and job.id for job in found] == [f"job{number}" for number in range(10)]
    assert scripts.count() >= 3


async def test_r2_ready_jobs_of_many_lanes_are_found(driver: StoreDriver) -> None:
    await driver.ended(*(f"done{number}" for number in range(5)))
    await driver.add(
        *(new_job(f"job{number}", key=f"key{number}") for number in range(find.MAX_SCANNED_LANES + 1))
    )
    found = await driver.store.find(Filter(states=(State.READY,)), 1000)
    assert len(found.jobs) == find.MAX_SCANNED_LANES + 1


async def test_j70_a_thread_without_a_loop_searches_too(driver: StoreDriver) -> None:
    await driver.add(*(f"job{number}" for number in range(JOBS)))
    blocking = driver.store.blocking
    assert blocking is not None
    changed = await asyncio.to_thread(blocking.amend, Filter(text="job249"), ReprioritiseJobs(1), 5)
    assert changed.changed == ("job249", "job2490", "job2491", "job2492", "job2493")
