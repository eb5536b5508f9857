"""Conformance tests for units that a handler requests while it runs. If they are not available, the job
waits, and its next claim reserves them."""

from __future__ import annotations

from typing import Literal

import pytest

from tidemill.core.batching import BatchPolicy
from tidemill.core.claims import ClaimedJob
from tidemill.core.feedback import Reason, UsageReport
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.operator_changes import RetryJobs
from tidemill.core.outcomes import (
    FinalFailure,
    JobRelease,
    Outcome,
    RetryLater,
    Snooze,
    Success,
    UnitWait,
    WriteAnswer,
)
from tidemill.core.pools import PoolSettings
from tidemill.core.states import State
from tidemill.testing.conformance.fixtures import (
    CALL_NOT_MADE,
    LEASE_SECONDS,
    SAMPLE_ERROR,
    StoreDriver,
    ids,
    need,
    new_job,
    refusal_of_call,
    usage_of_call,
)

TOKENS, CALLS_AT_ONCE = "tokens per minute", "calls at once"
TOKEN_POOL = PoolSettings(limits=(Limit.tokens(1_000, per="minute"),))
SECOND_POOL = PoolSettings(limits=(Limit.tokens(1_000, per="minute"), Limit.concurrent(5)))
KEYED_POOL = PoolSettings(limits=(Limit.requests(1, per="minute"),), keyed=True)


async def release_until_full(
    driver: StoreDriver, *waits: Need, needs: tuple[Need, ...] = (), full: float = 1_000
) -> None:
    """Uses `full` units of pool `other`. Then inserts job `a`, which needs `needs`, and claims it. Settles it
    as a job that must wait until the units in `waits` are free."""
    await driver.store.declare_pools({"own": TOKEN_POOL, "other": SECOND_POOL, "site": KEYED_POOL})
    if full:
        await driver.add(new_job("full", priority=0, needs=(need("other", tokens=full),)))
        await driver.settle(await driver.take_one(), spent=UsageReport(is_success=True))
    await driver.add(new_job("a", needs=needs))
    job = await driver.take_one()
    assert await driver.settle(job, UnitWait(waits), CALL_NOT_MADE) is WriteAnswer.OK


async def reclaim_when_open(driver: StoreDriver) -> ClaimedJob:
    """Advances the clock by 61 s, so that the pool has free units again. Claims job `a` again and returns
    it."""
    driver.clock.advance(61)
    job = await driver.take_one()
    assert job.id == "a"
    return job


async def use_units(driver: StoreDriver, job: ClaimedJob, need: Need) -> float | None:
    return await driver.store.reserve(job.id, job.fence, job.claim, need)


class TestDeferredUnits:
    async def test_p18_a_released_job_waits_for_the_pool_and_blocks_no_other(
        self, driver: StoreDriver
    ) -> None:
        await release_until_full(driver, need("other", tokens=400), needs=(need("own", tokens=100),))
        job = await driver.job("a")
        assert (job.state, job.attempts, job.deferred_needs) == (State.READY, 0, (need("other", tokens=400),))
        assert (job.due, job.seq) == (job.created, 2), "with its old sequence number"
        await driver.add(new_job("b", needs=(need("own", tokens=100),)), new_job("c"))
        claims = await driver.claim()
        assert set(ids(claims.jobs)) == {"b", "c"}
        assert claims.next_due == pytest.approx(61, abs=1.5)

    async def test_p18_the_next_claim_reserves_the_deferred_units(self, driver: StoreDriver) -> None:
        await release_until_full(driver, need("other", tokens=400), needs=(need("own", tokens=100),))
        job = await reclaim_when_open(driver)
        assert job.deferred_needs == (need("other", tokens=400),)
        assert await driver.used("own", TOKENS) == 100
        assert await driver.used("other", TOKENS) == 400
        await driver.add(new_job("b", needs=(need("other", tokens=700),)))
        assert await driver.take() == [], "kept for the first"

    async def test_p18_waiting_for_a_key_blocks_no_other_key(self, driver: StoreDriver) -> None:
        await release_until_full(driver, need("site", "x"), full=0)
        await driver.add(*[new_job(key, needs=(need("site", key),)) for key in "xy"])
        first, second = await driver.take()
        assert (first.id, second.id) == ("a", "y")
        assert await use_units(driver, first, need("site", "x")) is None

    async def test_p18_i14_units_count_again_when_the_call_is_made(self, driver: StoreDriver) -> None:
        """A claim reserves units, and the handler makes its call 20 s later. The units become free one window
        after the call, not after the claim."""
        await release_until_full(driver, need("other", tokens=400))
        job = await reclaim_when_open(driver)
        driver.clock.advance(20)
        assert await use_units(driver, job, need("other", tokens=400)) is None
        assert await driver.used("other", TOKENS) == 400, "once"
        assert (await driver.pool("other")).reservations == 1
        await driver.settle(job, spent=usage_of_call("other", tokens=300))
        driver.clock.advance(45)
        assert await driver.used("other", TOKENS) == 300
        driver.clock.advance(16)
        assert await driver.used("other", TOKENS) == 0

    @pytest.mark.parametrize("shape", ["rolling", "bucket"])
    async def test_p18_deferred_units_stay_reserved_during_a_long_first_part(
        self, driver: StoreDriver, shape: Literal["rolling", "bucket"]
    ) -> None:
        """The units stay reserved for the job, even if its handler works for minutes before the call."""
        pool = PoolSettings(limits=(Limit.tokens(1_000, per="minute", shape=shape),))
        await driver.store.declare_pools({"m": pool})
        await driver.add(new_job("a"), new_job("b", needs=(need("m", tokens=700),)))
        first, second = await driver.take()
        await driver.settle(second)
        await driver.settle(first, UnitWait((need("m", tokens=900),)))
        driver.clock.advance(61)
        job = await driver.take_one(lease=1_000.0)
        for _ in range(5):
            driver.clock.advance(61)
            await driver.add(new_job(f"at {driver.clock.boot()}", needs=(need("m", tokens=500),)))
            assert await driver.take() == []
        assert await use_units(driver, job, need("m", tokens=900)) is None
        await driver.settle(job)
        assert await driver.used("m", TOKENS) == 900

    async def test_p18_a_call_may_use_more_or_less_than_it_deferred(self, driver: StoreDriver) -> None:
        await release_until_full(driver, need("other", tokens=400))
        job = await reclaim_when_open(driver)
        assert await use_units(driver, job, need("other", tokens=1_000)) is None, (
            "the deferred units are part of it"
        )
        await driver.settle(job, UnitWait((need("other", tokens=1_000),)), CALL_NOT_MADE)
        job = await reclaim_when_open(driver)
        assert await use_units(driver, job, need("other", tokens=300)) is None
        assert await driver.used("other", TOKENS) == 1_000, "700 are kept for another call"
        await driver.settle(job)
        assert await driver.used("other", TOKENS) == 300

    async def test_p18_several_calls_take_their_own_deferred_units(self, driver: StoreDriver) -> None:
        await release_until_full(driver, need("other", tokens=400), need("other", tokens=500))
        job = await reclaim_when_open(driver)
        assert await driver.used("other", CALLS_AT_ONCE) == 2
        for tokens in (400, 500):
            assert await use_units(driver, job, need("other", tokens=tokens)) is None
            assert await driver.used("other", TOKENS) == 900
        assert (await use_units(driver, job, need("other", tokens=200)) or 0) > 0
        assert (await driver.pool("other")).reservations == 2
        await driver.settle(job)
        assert (await driver.used("other", TOKENS), await driver.used("other", CALLS_AT_ONCE)) == (900, 0)

    async def test_p18_deferred_units_add_to_the_needs_of_the_same_pool(self, driver: StoreDriver) -> None:
        await release_until_full(
            driver, need("other", tokens=400), needs=(need("other", tokens=500),), full=300
        )
        assert await driver.take() == []
        job = await reclaim_when_open(driver)
        assert (await driver.used("other", TOKENS), await driver.used("other", CALLS_AT_ONCE)) == (900, 2)
        await driver.settle(job, spent=usage_of_call("other", tokens=450))
        assert await driver.used("other", TOKENS) == 450, "the unused deferred call was not made"
        assert (await driver.pool("other")).reservations == 0

    async def test_p18_usage_is_booked_when_the_answer_is_complete(self, driver: StoreDriver) -> None:
        completed = PoolSettings(limits=(Limit.tokens(1_000, per="minute", charge="completed"),))
        await driver.store.declare_pools({"m": completed})
        await driver.add(new_job("a", needs=(need("m", tokens=500),)))
        await driver.settle(await driver.take_one(), UnitWait((need("m", tokens=400),)), CALL_NOT_MADE)
        job = await driver.take_one()
        assert await driver.used("m", TOKENS) == 900
        assert await use_units(driver, job, need("m", tokens=300)) is None
        assert await driver.used("m", TOKENS) == 900, "100 are kept for another call"
        await driver.settle(job, spent=usage_of_call("m", tokens=700))
        assert await driver.used("m", TOKENS) == 700
        driver.clock.advance(61)
        assert await driver.used("m", TOKENS) == 0

    async def test_p18_a_denied_request_changes_nothing(self, driver: StoreDriver) -> None:
        await release_until_full(driver, need("other", tokens=400))
        job = await reclaim_when_open(driver)
        await driver.store.close_pool("other", by="ann")
        assert (await use_units(driver, job, need("other", tokens=400)) or 0) > 0
        assert await driver.used("other", TOKENS) == 400
        await driver.store.open_pool("other")
        assert await use_units(driver, job, need("other", tokens=400)) is None
        assert await driver.used("other", TOKENS) == 400

    @pytest.mark.parametrize("spent", [None, UsageReport(), CALL_NOT_MADE])
    @pytest.mark.parametrize(
        "outcome",
        [Success(), RetryLater(1.0, SAMPLE_ERROR), Snooze(1.0), FinalFailure(SAMPLE_ERROR), JobRelease()],
    )
    async def test_p18_unused_deferred_units_are_returned(
        self, driver: StoreDriver, outcome: Outcome, spent: UsageReport | None
    ) -> None:
        await release_until_full(driver, need("other", tokens=400))
        await driver.settle(await reclaim_when_open(driver), outcome, spent)
        assert (await driver.used("other", TOKENS), await driver.used("other", CALLS_AT_ONCE)) == (0, 0)
        assert (await driver.pool("other")).reservations == 0

    async def test_p14_p18_a_silent_holder_may_have_spent_it(self, driver: StoreDriver) -> None:
        await release_until_full(driver, need("other", tokens=400))
        await reclaim_when_open(driver)
        driver.clock.advance(LEASE_SECONDS)
        await driver.store.reclaim()
        assert await driver.used("other", TOKENS) == 400, "it applies from now on"
        assert (await driver.pool("other")).reservations == 0

    @pytest.mark.parametrize("outcome", [RetryLater(0.0, SAMPLE_ERROR), Snooze(0.0)])
    async def test_p18_a_new_attempt_waits_for_no_deferred_units(
        self, driver: StoreDriver, outcome: Outcome
    ) -> None:
        await release_until_full(driver, need("other", tokens=400))
        await driver.settle(await reclaim_when_open(driver), outcome)
        job = await driver.job("a")
        assert (job.deferred_needs, job.lane) == ((), "")
        await driver.store.close_pool("other", by="ann")
        assert ids(await driver.take()) == ["a"]

    async def test_p18_a_manual_retry_drops_deferred_units(self, driver: StoreDriver) -> None:
        await release_until_full(driver, need("other", tokens=400))
        await driver.settle(await reclaim_when_open(driver), FinalFailure(SAMPLE_ERROR))
        await driver.amend(RetryJobs(), "a")
        job = await driver.job("a")
        assert (job.deferred_needs, job.lane) == ((), "")

    async def test_p18_a_job_that_was_not_started_still_waits_for_its_units(
        self, driver: StoreDriver
    ) -> None:
        await release_until_full(driver, need("other", tokens=400))
        await driver.settle(await reclaim_when_open(driver), JobRelease(), CALL_NOT_MADE)
        assert (await driver.job("a")).deferred_needs == (need("other", tokens=400),)

    async def test_p10_p18_units_that_can_never_be_granted_together_fail(self, driver: StoreDriver) -> None:
        await release_until_full(driver, need("own", tokens=600), needs=(need("own", tokens=500),), full=0)
        job = await driver.job("a")
        assert (job.state, job.reason) == (State.FAILED, "needs too much")
        assert job.error is not None
        assert "'own'" in job.error.message
        assert "1100 tokens" in job.error.message

    async def test_p18_a_batch_job_is_released_unchanged(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"other": SECOND_POOL})
        await driver.add(*[new_job(job, batching=BatchPolicy(max_items=2)) for job in "ab"])
        for job in await driver.take():
            await driver.settle(job, UnitWait((need("other", tokens=1),)))
        assert [job.deferred_needs for job in await driver.take()] == [(), ()]

    async def test_p18_i15_a_deferred_call_may_be_the_probe(self, driver: StoreDriver) -> None:
        await release_until_full(driver, need("other", tokens=400), full=0)
        until = driver.clock.wall() + 30
        await driver.store.observe(refusal_of_call("other", Reason.STATED, resets_at=until).observations)
        assert await driver.take() == []
        job = await reclaim_when_open(driver)
        await driver.add(new_job("b", needs=(need("other", tokens=1),)))
        assert await driver.take() == [], "one job tries for all"
        assert await use_units(driver, job, need("other", tokens=400)) is None
        assert await driver.take() == []
        await driver.settle(job, spent=usage_of_call("other", tokens=400))
        assert (await driver.pool("other")).closures == ()

    async def test_r10_p18_demand_includes_deferred_units(self, driver: StoreDriver) -> None:
        await release_until_full(driver, need("other", tokens=400), needs=(need("own", tokens=100),))
        (demand,) = await driver.store.demand()
        assert [(pool_need.pool, pool_need.units["tokens"]) for pool_need in demand.needs] == [
            ("other", 400),
            ("own", 100),
        ]

    async def test_j33_p18_a_repeated_claim_returns_the_deferred_units(self, driver: StoreDriver) -> None:
        await release_until_full(driver, need("other", tokens=400))
        job = await reclaim_when_open(driver)
        assert await driver.take(number=driver.numbers["w"]) == [job]

    async def test_j37_p18_claimed_by_its_id(self, driver: StoreDriver) -> None:
        await release_until_full(driver, need("other", tokens=400))
        assert (await driver.claim(named=["a"])).blocked == ("a",)
        driver.clock.advance(61)
        assert ids(await driver.take(named=["a"])) == ["a"]
        assert await driver.used("other", TOKENS) == 400
