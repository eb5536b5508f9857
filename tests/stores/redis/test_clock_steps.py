"""I26: the server's clock is stepped by an hour or a day. Leases and windows hold, calendars follow.

As in `test_clock`, the scripts add the test's skew to the time they read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.stores.redis.test_clock import HOUR, Skew
from tidemill.core.limits import Limit
from tidemill.core.outcomes import WriteAnswer
from tidemill.core.pools import PoolSettings
from tidemill.core.states import State
from tidemill.stores.redis import RedisStore
from tidemill.testing.clocks import ManualClock
from tidemill.testing.conformance.fixtures import StoreDriver, ids, need, new_job, usage_of_call

STEPS = [HOUR, -HOUR, 24 * HOUR, -24 * HOUR]


@pytest.fixture
def skew() -> Skew:
    return Skew()


@pytest.fixture
async def driver(redis_url: str, redis_prefix: str, skew: Skew) -> AsyncIterator[StoreDriver]:
    """A driver whose store uses the server's clock."""
    store = await RedisStore(redis_url, prefix=redis_prefix, skew=skew).open()
    yield StoreDriver(store, ManualClock())
    await store.close()


@pytest.mark.parametrize("step", STEPS)
async def test_i26_a_lease_outlives_a_step(driver: StoreDriver, skew: Skew, step: float) -> None:
    await driver.add("a")
    job = await driver.take_one()
    skew.seconds += step
    assert (await driver.store.reclaim()).ready == ()
    assert await driver.take("other") == []
    skew.seconds -= step
    assert (await driver.store.reclaim()).ready == ()
    assert await driver.settle(job) is WriteAnswer.OK


@pytest.mark.parametrize("step", STEPS)
async def test_i26_a_window_outlives_a_step(driver: StoreDriver, skew: Skew, step: float) -> None:
    await driver.store.declare_pools({"p": PoolSettings(limits=(Limit.requests(2, per="hour"),))})
    await driver.add(*(new_job(name, needs=(need("p", requests=1),)) for name in "abc"))
    for job in await driver.take():
        await driver.settle(job, spent=usage_of_call("p", requests=1))
    skew.seconds += step
    assert await driver.take() == [], "two were taken in this hour, by any clock"


async def test_i26_a_schedule_follows_the_clock(driver: StoreDriver, skew: Skew) -> None:
    await driver.add(new_job("a", delay=HOUR))
    assert await driver.take() == []
    skew.seconds += HOUR
    assert ids(await driver.take()) == ["a"]


async def test_i26_steps_under_load(driver: StoreDriver, skew: Skew) -> None:
    """Two workers with a handle each run jobs while the clock is stepped back and forth: nothing is
    reclaimed."""
    await driver.add(*(f"j{number}" for number in range(300)))
    other = await driver.store.new_handle().open()
    try:
        done = asyncio.gather(_drain(driver, "one"), _drain(StoreDriver(other, driver.clock), "two"))
        while not done.done():
            skew.seconds = HOUR - skew.seconds
            assert (await driver.store.reclaim()).ready == ()
        assert sum(await done) == 300
    finally:
        await other.close()
    assert (await driver.store.counts())["q"].get(State.DONE) == 300


async def _drain(driver: StoreDriver, worker: str) -> int:
    done = 0
    while jobs := await driver.take(worker, limit=5):
        for job in jobs:
            assert await driver.settle(job) is WriteAnswer.OK
        done += len(jobs)
    return done
