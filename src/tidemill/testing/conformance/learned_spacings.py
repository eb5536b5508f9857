"""Conformance tests for learned spacings (P24)."""

from __future__ import annotations

import pytest

from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.core.limits import Limit
from tidemill.core.outcomes import JobRelease
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.testing.conformance.fixtures import (
    StoreDriver,
    ids,
    need,
    new_job,
    refusal_of_call,
    usage_of_call,
)

SECOND = "requests per second"
SITE_POOL = PoolSettings(limits=(Limit.requests(1, per="second"),), keyed=True)


async def add_site_jobs(driver: StoreDriver, *keys: str, of: int = 12) -> None:
    await driver.store.declare_pools({"site": SITE_POOL})
    await driver.add(*[new_job(f"{key}{n}", needs=(need("site", key),)) for key in keys for n in range(of)])


async def refuse_call(driver: StoreDriver, seconds: float = 2.0, **refusal: float) -> None:
    """Claims a job of key `a` and settles it as refused, `seconds` later."""
    driver.clock.advance(seconds)
    job = await driver.take_one()
    reason = Reason.RATE if refusal else Reason.UNKNOWN
    await driver.settle(job, JobRelease(), refusal_of_call("site", reason, "a", **refusal))


async def succeed(driver: StoreDriver, seconds: float = 2.0) -> None:
    driver.clock.advance(seconds)
    await driver.settle(await driver.take_one(), spent=usage_of_call("site", "a", requests=1))


async def learned_seconds(driver: StoreDriver, key: str = "a") -> float | None:
    for view in await driver.store.pools():
        if (view.name, view.key) == ("site", key):
            [limit] = view.limits
            return None if limit.spacing is None else limit.spacing.seconds
    return None


class TestLearnedSpacing:
    async def test_p24_refusals_lengthen_it_and_successes_shorten_it(self, driver: StoreDriver) -> None:
        await add_site_jobs(driver, "a")
        for seconds in (2, 4, 8, 16):
            await refuse_call(driver, 40.0)
            assert await learned_seconds(driver) == seconds
        for eased in (8, 4, 2, None):
            await succeed(driver, 60.0)
            assert await learned_seconds(driver) == eased

    async def test_p24_the_next_call_waits_for_the_spacing(self, driver: StoreDriver) -> None:
        await add_site_jobs(driver, "a", "b")
        await driver.take(limit=2)
        for _ in range(4):
            driver.clock.advance(10)
            refusal = Refusal(reason=Reason.RATE)
            await driver.store.observe([Observation(pool="site", key="a", refusal=refusal)])
        assert await learned_seconds(driver) == 16
        driver.clock.advance(20)
        assert sorted(name[0] for name in ids(await driver.take())) == ["a", "b"]
        driver.clock.advance(15)
        assert [name[0] for name in ids(await driver.take())] == ["b"], "other keys keep their speed"
        driver.clock.advance(2)
        assert sorted(name[0] for name in ids(await driver.take())) == ["a", "b"]

    async def test_p24_a_stated_wait_is_learned_after_a_success(self, driver: StoreDriver) -> None:
        await add_site_jobs(driver, "a")
        await refuse_call(driver, retry_after=58.0)
        assert await learned_seconds(driver) is None
        await succeed(driver, 60.0)
        await refuse_call(driver, retry_after=58.0)
        assert await learned_seconds(driver) == pytest.approx(61)
        await succeed(driver, 62.0)
        assert await learned_seconds(driver) == pytest.approx(61)
        await succeed(driver, 3601.0)
        assert await learned_seconds(driver) == pytest.approx(0.75 * 61)

    async def test_p24_it_survives_restarts_and_is_not_pruned(self, driver: StoreDriver) -> None:
        await add_site_jobs(driver, "a")
        await refuse_call(driver)
        await refuse_call(driver, 10.0)
        await driver.reopen()
        driver.clock.reboot()
        await driver.reopen()
        driver.clock.advance(100)
        await driver.store.prune()
        assert await learned_seconds(driver) == 4
        assert await driver.store.check() == ()

    async def test_p24_p6_p23_an_operator_ends_it(self, driver: StoreDriver) -> None:
        await add_site_jobs(driver, "a")
        await refuse_call(driver)
        await driver.store.override_pool("site", LimitChanges(amounts={SECOND: 1}), key="a", by="ann")
        assert await learned_seconds(driver) is None
        await refuse_call(driver, 10.0)
        assert await learned_seconds(driver) == 2
        await driver.store.open_pool("site", key="a")
        assert await learned_seconds(driver) is None
