"""Long looks at a Redis shard come in pieces, and find what is there (R1, R2, R8, R10, J70)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis import Redis

from tidemill.core.changes import Reprioritise
from tidemill.core.filters import Filter
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import PoolSettings
from tidemill.core.states import State
from tidemill.stores.redis import RedisStore, few, lane_views, pool_views
from tidemill.testing.conformance.driver import Driver, ids, new
from tidemill.testing.manual import ManualClock, SeededEntropy

JOBS = 2500
"""More than one call looks at."""


@pytest.fixture
async def drive(redis_url: str) -> AsyncIterator[Driver]:
    clock = ManualClock()
    store = await RedisStore(redis_url, clock=clock, entropy=SeededEntropy(1)).open()
    yield Driver(store, clock)
    await store.close()


class Scripts:
    """How many scripts ran."""

    def __init__(self, url: str) -> None:
        self._server = Redis.from_url(url)
        self._server.config_resetstat()

    def count(self) -> int:
        found = self._server.info("commandstats").get("cmdstat_evalsha", {"calls": 0})
        self._server.close()
        return int(found["calls"])


async def test_r2_a_long_search_comes_in_pieces(drive: Driver, redis_url: str) -> None:
    """No call looks at more than a thousand jobs: the server is anybody else's in between."""
    await drive.add(*(f"job{number}" for number in range(JOBS)))
    scripts = Scripts(redis_url)
    page = await drive.store.find(Filter(text="nothing like it"))
    assert (page.jobs, page.cursor) == ((), None)
    assert scripts.count() >= JOBS // 1000 + 1


async def test_r2_pages_meet_everything_once(drive: Driver) -> None:
    """Whatever comes and goes meanwhile; pages of the index that are empty are passed over."""
    await drive.add(*(f"job{number}" for number in range(JOBS)))
    seen: list[str] = []
    cursor: int | None = None
    while True:
        page = await drive.store.find(Filter(queue="q"), 300, cursor)
        seen += ids(page.jobs)
        await drive.add(f"late{len(seen)}")
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == [f"job{number}" for number in reversed(range(JOBS))]


async def test_r2_few_of_many_are_found_by_their_state(drive: Driver, redis_url: str) -> None:
    await drive.add(*(f"job{number}" for number in range(JOBS)))
    taken = await drive.take(limit=3, shares=(("q", 3),))
    await drive.settle(taken[0])
    scripts = Scripts(redis_url)
    found = await drive.store.find(Filter(states=(State.RUNNING, State.DONE)))
    assert ids(found.jobs) == ["job2", "job1", "job0"]
    assert scripts.count() <= 2, "one, and another where the server did not know it yet"
    by_end = await drive.store.find(Filter(time="finished", since=0.0))
    assert ids(by_end.jobs) == ["job0"]


async def test_j70_a_change_means_the_oldest_first(drive: Driver) -> None:
    await drive.add(*(f"job{number}" for number in range(JOBS)))
    changed = await drive.store.amend(Filter(id_prefix="job2"), Reprioritise(1), 3)
    assert changed.changed == ("job2", "job20", "job21")
    assert len((await drive.store.amend(Filter(), Reprioritise(2), 2 * JOBS)).changed) == JOBS


async def test_r8_r10_many_lanes_come_in_pieces(drive: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_views, "LANES_AT_ONCE", 7)
    monkeypatch.setattr(lane_views, "IDS_AT_ONCE", 3)
    pool = PoolSettings(limits=(Limit.requests(2, per="minute"),), keyed=True)
    await drive.store.declare_pools({"site": pool})
    for host in range(20):
        needs = (Need("site", f"h{host:02}", {"requests": 1.0}),)
        await drive.add(*(new(f"{host}-{number}", needs=needs, priority=number % 2) for number in range(3)))
        drive.clock.advance(1.0)
    demand = await drive.store.demand()
    assert [(of.priority, of.jobs) for of in demand] == [(0, 2), (1, 1)] * 20
    assert {need.key for of in demand for need in of.needs} == {f"h{host:02}" for host in range(20)}
    backlog = await drive.store.backlog("q")
    assert backlog.oldest_ready == drive.clock.wall() - 20.0


async def test_p7_many_accounts_come_in_pieces(drive: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_views, "AT_ONCE", 4)
    pool = PoolSettings(limits=(Limit.requests(2, per="minute"),), keyed=True)
    await drive.store.declare_pools({"site": pool, "other": pool})
    for host in range(10):
        await drive.store.close_pool("site", key=f"h{host}", by="me")
        await drive.store.close_pool("other", key=f"o{host}", by="me")
    for host in range(0, 10, 2):
        await drive.store.open_pool("site", key=f"h{host}")
    found = [(view.name, view.key) for view in await drive.store.pools()]
    assert found == [
        *(("other", key) for key in (None, *(f"o{host}" for host in range(10)))),
        *(("site", key) for key in (None, "h1", "h3", "h5", "h7", "h9")),
    ]


async def test_r1_large_jobs_come_a_few_at_a_time(drive: Driver, redis_url: str) -> None:
    """A reply of hundreds of megabytes would keep the server, and fill the memory of both."""
    text = "x" * 1024 * 1024
    await drive.add(*(new(f"job{number}", payload=text) for number in range(10)))
    scripts = Scripts(redis_url)
    found = await drive.store.get([f"job{number}" for number in range(10)])
    assert [job and job.id for job in found] == [f"job{number}" for number in range(10)]
    assert scripts.count() >= 3


async def test_r2_ready_jobs_of_many_lanes_are_found(drive: Driver) -> None:
    await drive.ended(*(f"done{number}" for number in range(5)))
    await drive.add(*(new(f"job{number}", key=f"key{number}") for number in range(few.FEW_LANES + 1)))
    found = await drive.store.find(Filter(states=(State.READY,)), 1000)
    assert len(found.jobs) == few.FEW_LANES + 1


async def test_j70_a_thread_without_a_loop_searches_too(drive: Driver) -> None:
    await drive.add(*(f"job{number}" for number in range(JOBS)))
    blocking = drive.store.blocking
    assert blocking is not None
    changed = await asyncio.to_thread(blocking.amend, Filter(text="job249"), Reprioritise(1), 5)
    assert changed.changed == ("job249", "job2490", "job2491", "job2492", "job2493")
