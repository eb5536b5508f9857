"""Conformance tests for refusals: a refusal closes a pool, one probe tests it, a ramp opens it (I15, I16)."""

from __future__ import annotations

import pytest

from tidemill.core.batching import BatchPolicy
from tidemill.core.calendars import Day
from tidemill.core.claims import ClaimedJob, Settlement
from tidemill.core.feedback import Observation, Reason, UsageReport
from tidemill.core.late_calls import EXTRA_REQUEST_UNITS, Departure
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.operator_changes import CancelJobs, RetryJobs
from tidemill.core.outcomes import FinalFailure, JobRelease, RetryLater, Snooze, Success, WriteAnswer
from tidemill.core.pool_statistics import PoolChangeKind
from tidemill.core.pools import PoolSettings
from tidemill.core.states import State
from tidemill.testing.conformance.fixtures import (
    CALL_NOT_MADE,
    SAMPLE_ERROR,
    StoreDriver,
    ids,
    need,
    new_job,
    refusal_of_call,
)

DAY_POOL = PoolSettings(limits=(Limit.requests(20, per="minute"), Limit.requests(500, per=Day())))
LARGE_POOL = PoolSettings(limits=(Limit.requests(1000, per="minute"),))
SUCCESSFUL_CALL = UsageReport(is_success=True)
OVERLOADED = refusal_of_call("m", Reason.OVERLOAD)


async def declare_and_fill_pool(driver: StoreDriver, jobs: int = 30, pool: PoolSettings = DAY_POOL) -> None:
    await driver.store.declare_pools({"m": pool})
    await driver.add(*[new_job(f"{n:02}", needs=(need("m"),)) for n in range(jobs)])


async def close_pool_for(driver: StoreDriver, seconds: float) -> None:
    """Closes the pool `m` for `seconds` by a refusal that states its end. The refused job is ready again."""
    job = await driver.take_one()
    until = driver.clock.wall() + seconds
    await driver.settle(job, JobRelease(), refusal_of_call("m", Reason.STATED, resets_at=until))


class TestRefusals:
    async def test_p16_i16_the_settlement_itself_closes_and_costs_no_attempt(
        self, driver: StoreDriver
    ) -> None:
        """Settling a refused call closes the pool before the next claim. The job loses no attempt."""
        await declare_and_fill_pool(driver)
        job = await driver.take_one()
        spent = refusal_of_call("m", Reason.DAY_QUOTA, text="quota")
        assert await driver.settle(job, JobRelease(), spent) is WriteAnswer.OK
        claims = await driver.claim("x")
        assert claims.jobs == []
        assert claims.next_due == pytest.approx(6400 + 300), "midnight and the guard"
        (closure,) = (await driver.pool("m")).closures
        assert (closure.reason, closure.text) == (Reason.DAY_QUOTA, "quota")
        back = await driver.job(job.id)
        assert (back.state, back.attempts) == (State.READY, 0)

    async def test_p16_an_overload_without_a_hint_closes_by_chance(self, driver: StoreDriver) -> None:
        """If the provider names no end of an overload, the pool closes for a random time of up to 5 s, so
        that not all jobs start at once."""
        pool = PoolSettings(limits=(Limit.requests(5, per="minute"),), keyed=True)
        await driver.store.declare_pools({"m": pool})
        await driver.add(*[new_job(key, needs=(need("m", key),)) for key in "abcdefgh"])
        waits = []
        for job in await driver.take():
            await driver.settle(job, JobRelease(), refusal_of_call("m", Reason.OVERLOAD, job.id))
            (closure,) = (await driver.pool("m", job.id)).closures
            assert closure.until is not None
            waits.append(closure.until - driver.clock.wall())
        assert len(set(waits)) > 4
        assert min(waits) >= 0
        assert 1 < max(waits) <= 5

    async def test_p16_one_keys_refusal_leaves_the_others_at_full_speed(self, driver: StoreDriver) -> None:
        pool = PoolSettings(limits=(Limit.requests(5, per="minute"),), keyed=True)
        await driver.store.declare_pools({"m": pool})
        await driver.add(*[new_job(f"{key}{n}", needs=(need("m", key),)) for n in range(4) for key in "ab"])
        first = await driver.take_one()
        await driver.settle(first, JobRelease(), refusal_of_call("m", Reason.RATE, "a", retry_after=30))
        assert ids(await driver.take()) == ["b0", "b1", "b2", "b3"]
        driver.clock.advance(31)
        assert ids(await driver.take()) == ["a0", "a1", "a2", "a3"]

    async def test_p16_a_stale_refusal_closes_too(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver, 2)
        job = await driver.take_one()
        await driver.store.reclaim(["w"])
        assert await driver.settle(job, spent=refusal_of_call("m", Reason.DAY_QUOTA)) is WriteAnswer.STALE
        assert await driver.take() == []

    @pytest.mark.parametrize("silent", [True, False])
    async def test_p16_a_stale_refusal_counts_once(self, driver: StoreDriver, silent: bool) -> None:
        """A refusal counts once, even if the worker sends the same settlement several times. Here its claim
        is stale: the job was reclaimed (`silent`) or cancelled by an operator."""
        await declare_and_fill_pool(driver)
        job = await driver.take_one()
        if silent:
            await driver.store.reclaim(["w"])
        else:
            await driver.amend(CancelJobs(), job.id)
        for _ in range(3):
            assert await driver.settle(job, spent=refusal_of_call("m", Reason.OVERLOAD)) is WriteAnswer.STALE
        [minute] = await driver.store.pool_history("m", 0)
        assert minute.refusals == {"overload": 1}

    async def test_p16_a_refusal_of_a_released_job_counts_once(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver, 2)
        job = await driver.take_one()
        assert await driver.settle(job, JobRelease(), refusal_of_call("m", Reason.OVERLOAD)) is WriteAnswer.OK
        driver.clock.advance(600)
        await driver.take()
        assert (
            await driver.settle(job, JobRelease(), refusal_of_call("m", Reason.OVERLOAD)) is WriteAnswer.STALE
        )
        refusals = [minute.refusals for minute in await driver.store.pool_history("m", 0)]
        assert refusals.count({"overload": 1}) == 1

    async def test_p16_a_rate_closes_for_its_hint_and_needs_no_probe(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver, 5)
        job = await driver.take_one()
        await driver.settle(job, JobRelease(), refusal_of_call("m", Reason.RATE, retry_after=10))
        assert (await driver.claim()).next_due == pytest.approx(10.5)
        driver.clock.advance(10)
        assert await driver.take() == []
        driver.clock.advance(1)
        assert len(await driver.take()) == 5

    @pytest.mark.parametrize("by", [3600.0, -86_400.0])
    @pytest.mark.parametrize("reason", [Reason.RATE, Reason.STATED, Reason.UNKNOWN])
    async def test_i26_a_clock_step_keeps_the_providers_hint(
        self, driver: StoreDriver, reason: Reason, by: float
    ) -> None:
        await declare_and_fill_pool(driver, 5)
        job = await driver.take_one()
        await driver.settle(job, JobRelease(), refusal_of_call("m", reason, retry_after=1800))
        driver.clock.advance(5)
        driver.clock.step_wall(by)
        assert await driver.take() == []
        (closure,) = (await driver.pool("m")).closures
        assert closure.until == pytest.approx(driver.clock.wall() + 1795.5)
        driver.clock.advance(1795)
        assert await driver.take() == []
        driver.clock.advance(1)
        assert await driver.take() != []

    async def test_n5_a_hint_survives_a_reboot_by_the_wall_clock(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver, 5)
        job = await driver.take_one()
        await driver.settle(job, JobRelease(), refusal_of_call("m", Reason.STATED, retry_after=1800))
        driver.clock.reboot(after=600)
        assert await driver.take() == []
        driver.clock.advance(1199)
        assert await driver.take() == []
        driver.clock.advance(2)
        assert len(await driver.take()) == 1, "the probe"

    async def test_p4_an_observation_returns_its_effect(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver)
        report = refusal_of_call("m", Reason.STATED, resets_at=driver.clock.wall() + 100).observations
        [closed] = await driver.store.observe(report)
        assert (closed.what, closed.pool, closed.job) == (PoolChangeKind.CLOSED, "m", "")
        assert await driver.store.observe(report) == (), "it is closed already"
        assert await driver.store.observe([]) == ()

    async def test_p17_a_pool_change_is_reported_once(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver)
        refused = [await driver.take_one(), await driver.take_one()]
        report = refusal_of_call("m", Reason.STATED, resets_at=driver.clock.wall() + 100)
        settled = await driver.store.settle(
            [Settlement(job.id, job.fence, job.claim, JobRelease(), report) for job in refused]
        )
        assert [change.what for change in settled.pool_changes] == [PoolChangeKind.CLOSED], (
            "two refusals close it once"
        )
        driver.clock.advance(101)
        claims = await driver.claim()
        [probed] = claims.pool_changes
        assert (probed.what, probed.pool, probed.job) == (PoolChangeKind.PROBED, "m", claims.jobs[0].id)
        [probe] = claims.jobs
        settlement = Settlement(probe.id, probe.fence, probe.claim, Success(), SUCCESSFUL_CALL)
        [opened] = (await driver.store.settle([settlement])).pool_changes
        assert (opened.what, opened.ramp) == (PoolChangeKind.OPENED, True)
        assert (await driver.store.settle([settlement])).pool_changes == ()

    async def test_p16_a_lower_stated_limit_applies_at_once(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver)
        await driver.store.observe([Observation(pool="m", amounts={"requests per minute": 5})])
        assert len(await driver.take()) == 5
        limit = (await driver.pool("m")).limits[0]
        assert limit.amount == 20
        assert limit.learned is not None
        assert (limit.learned.amount, limit.learned.since) == (5, driver.clock.wall())

    async def test_p6_a_manual_opening_needs_no_probe_and_no_ramp(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver, 30)
        await close_pool_for(driver, 3_600)
        await driver.store.observe([Observation(pool="m", amounts={"requests per minute": 5})])
        await driver.store.open_pool("m")
        assert len(await driver.take()) == 19, "the refused call was one of twenty"
        view = await driver.pool("m")
        assert (view.closures, view.ramp) == ((), None)

    async def test_i15_no_call_before_the_stored_time_also_after_another_boot(
        self, driver: StoreDriver
    ) -> None:
        await declare_and_fill_pool(driver)
        await close_pool_for(driver, 1_000)
        for _ in range(3):
            driver.clock.reboot(100.0)
            await driver.reopen()
            assert await driver.take() == []
        driver.clock.advance(690)
        assert await driver.take() == []
        driver.clock.advance(100)
        assert len(await driver.take()) == 1, "the probe"

    async def test_p5_i15_a_manual_closure_outlives_the_breaker(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver)
        await driver.store.close_pool("m", by="ann")
        await driver.store.observe(refusal_of_call("m", Reason.RATE, retry_after=5).observations)
        driver.clock.advance(100)
        assert await driver.take() == []
        assert (await driver.pool("m")).closed is not None


class TestOverloads:
    async def test_p17_i16_calls_claimed_before_the_closure_belong_to_its_incident(
        self, driver: StoreDriver
    ) -> None:
        await declare_and_fill_pool(driver, 12)
        answers = [await settle_overloaded(driver, job) for job in await driver.take()]
        assert answers == [[WriteAnswer.OK]] * 12
        assert (await driver.pool("m")).account.breaker.budget.left == 9
        assert {(await driver.job(f"{job:02}")).attempts for job in range(12)} == {0}

    async def test_p17_i16_a_retry_of_the_client_belongs_to_the_incident_of_its_call(
        self, driver: StoreDriver
    ) -> None:
        """An overload closes the pool while 40 calls run. Then each client retries its request once and gets
        an overload too. No job loses an attempt."""
        await declare_and_fill_pool(driver, 40, LARGE_POOL)
        held = await driver.take()
        driver.clock.advance(1)
        await driver.store.observe(OVERLOADED.observations)
        retry, answers = Need("m", None, EXTRA_REQUEST_UNITS), []
        for job in held:
            driver.clock.advance(0.1)
            await driver.store.reserve(job.id, job.fence, job.claim, retry, Departure.EXTRA)
            answers += await settle_overloaded(driver, job)
        assert answers == [WriteAnswer.OK] * 40

    async def test_p17_i16_the_pool_pays_first_and_then_the_job(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver, 1, LARGE_POOL)
        await cause_incidents(driver, 10)
        assert (await driver.job("00")).attempts == 0
        assert await settle_overloaded(driver, await driver.take_one()) == [WriteAnswer.CHARGED]
        assert (await driver.job("00")).attempts == 1

    async def test_p17_b4_all_jobs_of_a_call_are_charged(self, driver: StoreDriver) -> None:
        """If an overload costs the first job of a batch call an attempt, it costs every job of the call an
        attempt. Only the first job reports the overload."""
        call, _ = await exhaust_overload_budget(driver)
        assert await settle_overloaded(driver, *call) == [WriteAnswer.CHARGED] * 3
        assert [(await driver.job(job)).attempts for job in "abc"] == [1, 1, 1]

    async def test_p17_i6_a_call_is_charged_although_its_first_job_is_lost(self, driver: StoreDriver) -> None:
        call, _ = await exhaust_overload_budget(driver)
        await driver.amend(CancelJobs(), "a")
        assert await settle_overloaded(driver, *call) == [
            WriteAnswer.STALE,
            WriteAnswer.CHARGED,
            WriteAnswer.CHARGED,
        ]

    async def test_p17_no_other_call_is_charged(self, driver: StoreDriver) -> None:
        call, other = await exhaust_overload_budget(driver)
        assert await settle_overloaded(driver, call[0], other) == [WriteAnswer.CHARGED, WriteAnswer.OK]


async def exhaust_overload_budget(driver: StoreDriver) -> tuple[list[ClaimedJob], ClaimedJob]:
    """Causes overloads until each further overload of pool `m` costs an attempt. Then inserts and claims four
    batch jobs. Returns the three jobs of the first call, and the one job of the second call."""
    await declare_and_fill_pool(driver, 1, LARGE_POOL)
    await cause_incidents(driver, 10)
    await driver.settle(await driver.take_one(), Success(), SUCCESSFUL_CALL)
    rule = BatchPolicy(max_items=3)
    await driver.add(*[new_job(job, batching=rule, needs=(need("m"),), priority=9) for job in "abcd"])
    held = await driver.take()
    return held[:3], held[3]


async def cause_incidents(driver: StoreDriver, count: int) -> None:
    """Causes `count` overloads within a minute. After each overload a successful probe opens the pool
    again."""
    for _ in range(count):
        assert await settle_overloaded(driver, await driver.take_one()) == [WriteAnswer.OK]
        driver.clock.advance(5.0)
        probe = await driver.take_one()
        await driver.settle(probe, JobRelease(), SUCCESSFUL_CALL)


async def settle_overloaded(driver: StoreDriver, *held: ClaimedJob) -> list[WriteAnswer]:
    """Settles the jobs as refused by an overload and returns the answers. Only the first job carries the
    report of the call."""
    settlements = [
        Settlement(
            job.id,
            job.fence,
            job.claim,
            JobRelease(),
            None if at else OVERLOADED,
            RetryLater(0.0, SAMPLE_ERROR),
        )
        for at, job in enumerate(held)
    ]
    return (await driver.store.settle(settlements)).answers


class TestClaimWait:
    async def test_p20_a_claim_reports_its_wait_and_a_repetition_does_not(self, driver: StoreDriver) -> None:
        """A claim reports in `waited` how many seconds the store waited before it reserved the units. A
        repeated claim reports None. Each store has its own tests of long waits for locks."""
        await declare_and_fill_pool(driver, 2)
        claims = await driver.claim(limit=1)
        assert claims.waited is not None
        assert 0 <= claims.waited < 5
        [job] = claims.jobs
        repeated = await driver.claim(limit=1, number=driver.numbers["w"])
        assert (ids(repeated.jobs), repeated.waited) == ([job.id], None)
        settlement = Settlement(job.id, job.fence, job.claim, Success(), SUCCESSFUL_CALL)
        settled = await driver.store.settle([settlement], driver.request(limit=1))
        assert settled.claims is not None
        assert settled.claims.waited is not None


class TestConsecutiveRefusals:
    async def test_p19_consecutive_refusals_are_counted(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver, 1, LARGE_POOL)
        for count in range(1, 4):
            await driver.settle(await driver.take_one(), JobRelease(excused=True), SUCCESSFUL_CALL)
            await driver.settle(await driver.take_one(), JobRelease(), CALL_NOT_MADE)
            repeated = await driver.take_one()
            assert (repeated.needs[0].excused, repeated.attempt) == (count, 1)
            await driver.settle(repeated, JobRelease(), CALL_NOT_MADE)

    @pytest.mark.parametrize("outcome", [RetryLater(0.0, SAMPLE_ERROR), Snooze(0.0)])
    async def test_p19_a_charged_or_snoozed_attempt_resets_the_count(
        self, driver: StoreDriver, outcome: RetryLater | Snooze
    ) -> None:
        await declare_and_fill_pool(driver, 1, LARGE_POOL)
        await driver.settle(await driver.take_one(), JobRelease(excused=True), SUCCESSFUL_CALL)
        await driver.settle(await driver.take_one(), outcome, SUCCESSFUL_CALL)
        assert (await driver.take_one()).needs == (need("m"),)

    async def test_p19_a_manual_retry_resets_the_count(self, driver: StoreDriver) -> None:
        await declare_and_fill_pool(driver, 1, LARGE_POOL)
        await driver.settle(await driver.take_one(), JobRelease(excused=True), SUCCESSFUL_CALL)
        await driver.settle(await driver.take_one(), FinalFailure(SAMPLE_ERROR), SUCCESSFUL_CALL)
        await driver.amend(RetryJobs(), "00")
        assert (await driver.take_one()).needs == (need("m"),)
