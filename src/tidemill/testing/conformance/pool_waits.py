"""Conformance tests for jobs that wait for a pool: waiting costs nothing and ends as soon as possible."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.contract.coordination import queue_topic
from tidemill.core import accounts
from tidemill.core.batching import BatchPolicy
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import Success
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.testing.conformance.fixtures import (
    CALL_NOT_MADE,
    CallCounter,
    StoreDriver,
    count_calls,
    ids,
    need,
    new_job,
    usage_of_call,
)
from tidemill.testing.conformance.wakeups import arm_listener

ONE_CALL_POOL = PoolSettings(limits=(Limit.concurrent(1),))
TOKENS = "tokens per minute"
TOKEN_POOL = PoolSettings(limits=(Limit.tokens(1000, per="minute"),))
JOB_NAMES = ("big", "s0", "s1", "s2")
TWO_PER_MINUTE_POOL = PoolSettings(limits=(Limit.requests(2, per="minute"),))


@pytest.fixture
def account_requests(monkeypatch: pytest.MonkeyPatch) -> CallCounter:
    """A fixture that returns a counter: how often the engine asked an account for units."""
    return count_calls(monkeypatch, accounts, "request_units")


class TestPoolWaits:
    @pytest.mark.parametrize("lanes", [10_000])
    async def test_p12_lanes_behind_an_exhausted_pool_cost_nothing(
        self, driver: StoreDriver, account_requests: CallCounter, lanes: int
    ) -> None:
        """The cost of a claim does not depend on the number of lanes that wait for a pool. Here four idle
        workers claim once per second. They ask the account at most twice per second, or five times when units
        become free."""
        await driver.store.declare_pools({"m": TWO_PER_MINUTE_POOL})
        for start in range(0, lanes, 1000):
            some = range(start, start + 1000)
            await driver.add(*[new_job(f"{n:05}", key=f"k{n}", needs=(need("m"),)) for n in some])
        assert len(await driver.take(limit=8)) == 2
        assert account_requests.since() <= 5
        started, now = 0, -1
        for second in (*range(10), *range(55, 70), *range(116, 130)):
            driver.clock.advance(second - now)
            now = second
            for worker in "wxyz":
                started += len(await driver.take(worker, limit=8))
            opening = second in (60, 121)
            assert account_requests.since() <= (5 if opening else 2), second
        assert started == 4

    async def test_p12_a_blocked_pool_is_not_tried_twice_within_a_second(
        self, driver: StoreDriver, account_requests: CallCounter
    ) -> None:
        await driver.store.declare_pools({"m": TWO_PER_MINUTE_POOL})
        await driver.add(*[new_job(f"{n}", needs=(need("m"),)) for n in range(5)])
        await driver.take()
        account_requests.since()
        for worker in "wxyz":
            claims = await driver.claim(worker)
            assert (claims.jobs, claims.more) == ([], False)
            assert claims.next_due == pytest.approx(60.5, abs=0.5)
        assert account_requests.since() == 0
        driver.clock.advance(1)
        for worker in "wxyz":
            await driver.claim(worker)
        assert account_requests.since() == 1, (
            "the first job is tried once a second, in case a wake-up was lost"
        )

    async def test_p12_blocked_keys_are_not_tried_before_their_wait_ends(
        self, driver: StoreDriver, account_requests: CallCounter
    ) -> None:
        await driver.store.declare_pools(
            {"site": PoolSettings(limits=(Limit.requests(1, per=30),), keyed=True)}
        )
        keys = [f"k{n}" for n in range(50)]
        await driver.add(
            *[new_job(f"{key}.{n}", needs=(need("site", key),)) for key in keys for n in range(2)]
        )
        assert len(await driver.take()) == 50
        assert account_requests.since() <= 100
        for _ in range(29):
            driver.clock.advance(1)
            assert await driver.take() == []
        assert account_requests.since() == 0
        driver.clock.advance(3)
        assert len(await driver.take()) == 50

    async def test_p12_a_smaller_job_is_tried_within_a_second(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": PoolSettings(limits=(Limit.tokens(100, per="minute"),))})
        await driver.add(new_job("first", needs=(need("m", tokens=50),)))
        await driver.take()
        await driver.add(
            new_job("big", needs=(need("m", tokens=90),)), new_job("small", needs=(need("m", tokens=9),))
        )
        assert await driver.take() == []
        await driver.amend(CancelJobs(), "big")
        driver.clock.advance(1)
        assert ids(await driver.take()) == ["small"]

    async def test_j38_jobs_without_pools_are_more(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": ONE_CALL_POOL})
        await driver.add(*[new_job(f"{n}", needs=(need("m"),)) for n in range(3)])
        await driver.add("plain")
        assert (await driver.claim(limit=1)).more
        claims = await driver.claim(limit=1)
        assert (ids(claims.jobs), claims.more) == (["plain"], True)
        assert not (await driver.claim(limit=1)).more

    async def test_p15_a_wait_without_jobs_is_not_due(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": TWO_PER_MINUTE_POOL})
        await driver.add(*[new_job(f"{n}", needs=(need("m"),)) for n in range(3)])
        assert (await driver.claim()).next_due is not None
        await driver.amend(CancelJobs(), "2")
        assert (await driver.claim()).next_due is None


class TestOversizedJobs:
    """Tests of a job that needs more units than its pool allows now. The limit was higher when the job was
    accepted."""

    async def cut(self, driver: StoreDriver, **options: Any) -> None:
        """Inserts a job that needs 900 tokens and, in the same lane, three jobs that need 100 each. Then an
        override (`options`) lowers the limit from 1 000 to 500 tokens."""
        await driver.store.declare_pools({"m": TOKEN_POOL})
        await driver.add(
            *[new_job(name, needs=(need("m", tokens=900 if name == "big" else 100),)) for name in JOB_NAMES]
        )
        await driver.store.override_pool("m", LimitChanges(amounts={TOKENS: 500}), by="ann", **options)

    async def test_p12_an_oversized_job_blocks_no_other_and_starts_after_the_override(
        self, driver: StoreDriver
    ) -> None:
        await self.cut(driver, until=driver.clock.wall() + 40)
        claims = await driver.claim()
        assert ids(claims.jobs) == ["s0", "s1", "s2"]
        for job in claims.jobs:
            await driver.settle(job, Success(), usage_of_call("m", tokens=0))
        claims = await driver.claim()
        assert (claims.jobs, claims.more) == ([], False)
        assert claims.next_due == pytest.approx(40)
        driver.clock.advance(41)
        assert ids(await driver.take()) == ["big"]

    async def test_p12_p15_changed_limits_wake_and_retry_an_oversized_job(self, driver: StoreDriver) -> None:
        await self.cut(driver)
        await driver.take()
        await driver.take()
        driver.clock.advance(61)
        await driver.take()
        async with arm_listener(driver, queue_topic("q")) as listener:
            await driver.store.clear_pool_override("m")
            assert await listener.wait(5.0)
        assert ids(await driver.take()) == ["big"]

    async def test_p12_an_oversized_job_is_tried_once_a_minute(
        self, driver: StoreDriver, account_requests: CallCounter
    ) -> None:
        await driver.store.declare_pools({"m": TOKEN_POOL})
        await driver.add(*[new_job(f"big-{n}", needs=(need("m", tokens=900),)) for n in range(50)])
        await driver.add(*[new_job(f"small-{n}", needs=(need("m", tokens=1),)) for n in range(100)])
        await driver.store.declare_pools({"m": PoolSettings(limits=(Limit.tokens(500, per="minute"),))})
        await driver.take(limit=1)
        account_requests.since()
        for _ in range(50):
            await driver.settle(await driver.take_one(), Success(), usage_of_call("m", tokens=0))
            driver.clock.advance(1)
        assert account_requests.since() <= 50 + 2 * 50

    async def test_p12_oversized_jobs_with_a_key_or_in_a_batch_wait_too(self, driver: StoreDriver) -> None:
        pool = PoolSettings(limits=TOKEN_POOL.limits, keyed=True)
        rule = BatchPolicy(max_items=3)
        await driver.store.declare_pools({"m": TOKEN_POOL, "site": pool})
        for name in JOB_NAMES:
            units = {"tokens": 900.0 if name == "big" else 100.0}
            await driver.add(new_job(name, needs=(Need("site", "a", units),)))
            await driver.add(new_job(f"{name}-batch", needs=(Need("m", None, units),), batching=rule))
        less = (Limit.tokens(500, per="minute"),)
        await driver.store.declare_pools(
            {"m": PoolSettings(limits=less), "site": PoolSettings(limits=less, keyed=True)}
        )
        expected = {f"s{n}{kind}" for n in range(3) for kind in ("", "-batch")}
        assert set(ids(await driver.take())) == expected
        assert await driver.take() == []
        await driver.store.declare_pools({"m": TOKEN_POOL, "site": pool})
        driver.clock.advance(61)
        assert set(ids(await driver.take())) == {"big", "big-batch"}


class TestPoolWakeups:
    async def test_p15_an_ended_call_wakes_the_waiting_queue(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": ONE_CALL_POOL})
        await driver.add(new_job("a", needs=(need("m"),)))
        await driver.add(new_job("b", needs=(need("m"),)), queue="p")
        job = await driver.take_one()
        assert await driver.take(shares=(("p", 9),)) == []
        async with arm_listener(driver, queue_topic("p")) as listener:
            await driver.settle(job)
            assert await listener.wait(5.0)
        assert ids(await driver.take(shares=(("p", 9),))) == ["b"]

    @pytest.mark.parametrize("how", ["override", "declare", "open", "release"])
    async def test_p2_p6_p15_an_opened_pool_wakes_and_is_tried_at_once(
        self, driver: StoreDriver, how: str
    ) -> None:
        await driver.store.declare_pools({"m": TWO_PER_MINUTE_POOL})
        await driver.add(*[new_job(f"{n}", needs=(need("m"),)) for n in range(3)])
        taken = await driver.take(limit=2)
        if how == "open":
            await driver.store.close_pool("m", by="ann")
        assert await driver.take() == []
        async with arm_listener(driver, queue_topic("q")) as listener:
            match how:
                case "override":
                    changes = LimitChanges(amounts={"requests per minute": 3})
                    await driver.store.override_pool("m", changes, by="ann")
                case "declare":
                    more = PoolSettings(limits=(Limit.requests(3, per="minute"),))
                    await driver.store.declare_pools({"m": more})
                case "open":
                    await driver.store.open_pool("m")
                case _:
                    await driver.settle(taken[0], spent=CALL_NOT_MADE)
            assert await listener.wait(5.0)
        assert len(await driver.take()) == (0 if how == "open" else 1)

    async def test_p15_a_reclaim_wakes_waiting_queues(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": ONE_CALL_POOL})
        await driver.add(new_job("a", needs=(need("m"),)))
        await driver.add(new_job("b", needs=(need("m"),)), queue="p")
        await driver.take_one()
        assert await driver.take(shares=(("p", 9),)) == []
        async with arm_listener(driver, queue_topic("p")) as listener:
            await driver.store.reclaim(["w"])
            assert await listener.wait(5.0)
