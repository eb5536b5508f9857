"""Conformance tests for the breaker: probes, ramps and learned limits."""

from __future__ import annotations

import pytest

from tidemill.core.feedback import Reason
from tidemill.core.outcomes import JobRelease
from tidemill.testing.conformance.fixtures import (
    CALL_NOT_MADE,
    StoreDriver,
    refusal_of_call,
)
from tidemill.testing.conformance.refusals import (
    LARGE_POOL,
    SUCCESSFUL_CALL,
    close_pool_for,
    declare_and_fill_pool,
)


class TestEstimatedLimit:
    async def test_p16_an_estimated_limit_rises_up_to_the_declared_one(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver, 2, LARGE_POOL)
        for _ in range(2):
            rate = refusal_of_call("m", Reason.RATE, retry_after=1)
            await driver.settle(await driver.take_one(), JobRelease(), rate)
            driver.clock.advance(61)
        assert await self.believed(driver) == 500
        for amount in (750, 1000, 1000):
            await driver.settle(await driver.take_one(), JobRelease(), SUCCESSFUL_CALL)
            assert await self.believed(driver) == amount
            driver.clock.advance(61)

    async def believed(self, driver: StoreDriver) -> float:
        [limit] = (await driver.pool("m")).limits
        return limit.amount if limit.learned is None else limit.learned.amount


class TestProbe:
    async def test_i15_exactly_one_job_probes_and_the_others_wait(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver)
        await close_pool_for(driver, 100)
        driver.clock.advance(101)
        (probe,) = await driver.take()
        claims = await driver.claim("x")
        assert claims.jobs == []
        assert claims.next_due is None, "it wakes when the call has ended"
        await driver.settle(probe, spent=SUCCESSFUL_CALL)
        assert (await driver.pool("m")).closures == ()
        assert len(await driver.take("x")) == 1, "a tenth of twenty, the probe among them"

    async def test_i15_a_call_of_many_minutes_is_one_probe_and_opens(self, driver: StoreDriver) -> None:
        """A slow probe stays the only probe while its lease is renewed, and its success opens the pool. If it
        were replaced, the pool of a slow provider would never open."""
        await declare_and_fill_pool(driver)
        await close_pool_for(driver, 100)
        driver.clock.advance(101)
        (probe,) = await driver.take()
        for _ in range(30):
            driver.clock.advance(20)
            await driver.beat(probe)
            await driver.store.reclaim([])
            assert await driver.take("x") == []
        await driver.settle(probe, spent=SUCCESSFUL_CALL)
        assert (await driver.pool("m")).closures == ()
        assert len(await driver.take("x")) == 2, "a tenth of twenty"

    async def test_i15_a_silent_probe_is_replaced_when_its_lease_ends(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver)
        await close_pool_for(driver, 100)
        driver.clock.advance(101)
        await driver.take(lease=30.0)
        driver.clock.advance(29)
        await driver.store.reclaim([])
        assert await driver.take("x") == []
        driver.clock.advance(2)
        await driver.store.reclaim([])
        assert len(await driver.take("x")) == 1

    async def test_p14_i15_a_reclaimed_probe_is_replaced_at_once(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver)
        await close_pool_for(driver, 100)
        driver.clock.advance(101)
        await driver.take()
        await driver.store.reclaim(["w"])
        assert len(await driver.take("x")) == 1

    async def test_i15_a_refused_probe_closes_again(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver)
        await close_pool_for(driver, 100)
        driver.clock.advance(101)
        (probe,) = await driver.take()
        until = driver.clock.wall() + 500
        await driver.settle(probe, JobRelease(), refusal_of_call("m", Reason.STATED, resets_at=until))
        assert await driver.take("x") == []
        (closure,) = (await driver.pool("m")).closures
        assert closure.times == 2
        assert closure.until == pytest.approx(until + 0.5)

    async def test_i15_after_a_probe_without_a_call_the_next_job_probes(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver)
        await close_pool_for(driver, 100)
        driver.clock.advance(101)
        (probe,) = await driver.take()
        await driver.settle(probe, JobRelease(), CALL_NOT_MADE)
        assert len(await driver.take()) == 1
        assert len((await driver.pool("m")).closures) == 1

    async def test_i15_only_the_probes_answer_opens(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver)
        early = await driver.take_one("x")
        await close_pool_for(driver, 100)
        driver.clock.advance(101)
        (probe,) = await driver.take()
        await driver.settle(early, spent=SUCCESSFUL_CALL)
        assert await driver.take() == []
        await driver.settle(probe, spent=SUCCESSFUL_CALL)
        assert len(await driver.take()) == 1, "a tenth of twenty, the probe among them"

    async def test_i15_a_ramp_follows_from_a_tenth_to_the_whole(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver, 90)
        await close_pool_for(driver, 100)
        driver.clock.advance(101)
        (probe,) = await driver.take()
        await driver.settle(probe, spent=SUCCESSFUL_CALL)
        share = (await driver.pool("m")).ramp
        assert share == pytest.approx(0.1)
        started = 1 + len(await driver.take())
        assert started <= 2, "a tenth of twenty"
        while (now := (await driver.pool("m")).ramp) is not None:
            driver.clock.advance(1)
            started += len(await driver.take())
            assert started <= 20 * now + 2
        assert started <= 21
