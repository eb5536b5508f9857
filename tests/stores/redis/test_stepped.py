"""I26: the clock of the server is stepped by an hour or a day: leases and windows hold, calendars follow.

As in `test_clocks`, the scripts add what the test says to the time they read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.stores.redis.test_clocks import HOUR, Skew
from tidemill.core.limits import Limit
from tidemill.core.outcomes import Answer
from tidemill.core.pools import PoolSettings
from tidemill.core.states import State
from tidemill.stores.redis import RedisStore
from tidemill.testing.conformance.driver import Driver, ids, need, new, using
from tidemill.testing.manual import ManualClock

STEPS = [HOUR, -HOUR, 24 * HOUR, -24 * HOUR]


@pytest.fixture
def skew() -> Skew:
    return Skew()


@pytest.fixture
async def drive(redis_url: str, redis_prefix: str, skew: Skew) -> AsyncIterator[Driver]:
    """Its clock is nobody's: the server's counts."""
    store = await RedisStore(redis_url, prefix=redis_prefix, skew=skew).open()
    yield Driver(store, ManualClock())
    await store.close()


@pytest.mark.parametrize("step", STEPS)
async def test_i26_a_lease_outlives_a_step(drive: Driver, skew: Skew, step: float) -> None:
    await drive.add("a")
    job = await drive.take_one()
    skew.seconds += step
    assert (await drive.store.reclaim()).ready == ()
    assert await drive.take("other") == []
    skew.seconds -= step
    assert (await drive.store.reclaim()).ready == ()
    assert await drive.settle(job) is Answer.OK


@pytest.mark.parametrize("step", STEPS)
async def test_i26_a_window_outlives_a_step(drive: Driver, skew: Skew, step: float) -> None:
    await drive.store.declare_pools({"p": PoolSettings(limits=(Limit.requests(2, per="hour"),))})
    await drive.add(*(new(name, needs=(need("p", requests=1),)) for name in "abc"))
    for job in await drive.take():
        await drive.settle(job, spent=using("p", requests=1))
    skew.seconds += step
    assert await drive.take() == [], "two were taken in this hour, whatever the clock says"


async def test_i26_a_schedule_follows_the_clock(drive: Driver, skew: Skew) -> None:
    await drive.add(new("a", delay=HOUR))
    assert await drive.take() == []
    skew.seconds += HOUR
    assert ids(await drive.take()) == ["a"]


async def test_i26_steps_under_load(drive: Driver, skew: Skew) -> None:
    """Two workers on handles of their own, while the clock goes to and fro: nothing is reclaimed."""
    await drive.add(*(f"j{number}" for number in range(300)))
    other = await drive.store.another().open()
    try:
        done = asyncio.gather(_drain(drive, "one"), _drain(Driver(other, drive.clock), "two"))
        while not done.done():
            skew.seconds = HOUR - skew.seconds
            assert (await drive.store.reclaim()).ready == ()
        assert sum(await done) == 300
    finally:
        await other.close()
    assert (await drive.store.counts())["q"].get(State.DONE) == 300


async def _drain(drive: Driver, worker: str) -> int:
    done = 0
    while jobs := await drive.take(worker, limit=5):
        for job in jobs:
            assert await drive.settle(job) is Answer.OK
        done += len(jobs)
    return done
