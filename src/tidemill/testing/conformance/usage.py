"""Conformance tests for the end of a reservation (I14). When a call ends, the store counts its used units and
frees the unused units. If the worker has died, the store counts all reserved units again, from the time of
the reclaim. Each reservation ends exactly once."""

from __future__ import annotations

from random import Random

import pytest

from tidemill.core.calendars import Day
from tidemill.core.claims import ClaimedJob
from tidemill.core.feedback import Observation, PoolUsage, UsageReport
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import FinalFailure, JobRelease, RetryLater, Snooze, Success, WriteAnswer
from tidemill.core.pools import PoolSettings
from tidemill.core.states import LIVE
from tidemill.testing.conformance.fixtures import (
    CALL_NOT_MADE,
    LEASE_SECONDS,
    SAMPLE_ERROR,
    StoreDriver,
    ids,
    need,
    new_job,
    usage_of_call,
)

TOKENS, CALLS_AT_ONCE = "tokens per minute", "calls at once"
TOKEN_POOL = PoolSettings(limits=(Limit.tokens(10_000, per="minute"), Limit.concurrent(3)))
RESERVATION_CHARGED_POOL = PoolSettings(limits=(Limit.tokens(10_000, per="minute", charge="reserved"),))


async def claim_first_job(
    driver: StoreDriver, pool: PoolSettings = TOKEN_POOL, jobs: str = "a", tokens: float = 2_000
) -> ClaimedJob:
    """Declares the pool `m` and inserts one job per letter of `jobs`; each needs `tokens` tokens of the pool.
    Claims one job and returns it."""
    await driver.store.declare_pools({"m": pool})
    await driver.add(*[new_job(job, needs=(need("m", tokens=tokens),)) for job in jobs])
    return await driver.take_one()


async def load_used_units(driver: StoreDriver) -> tuple[float, float]:
    return await driver.used("m", TOKENS), await driver.used("m", CALLS_AT_ONCE)


class TestUsage:
    async def test_p13_unused_units_are_free_at_the_next_claim(self, driver: StoreDriver) -> None:
        """Units that a call reserved but did not use are free for the next claim. Here 2 000 tokens were
        reserved and 700 used."""
        job = await claim_first_job(driver)
        await driver.add(new_job("rest", needs=(need("m", tokens=9_300),)))
        assert await driver.take() == []
        assert await driver.settle(job, spent=usage_of_call("m", tokens=700)) is WriteAnswer.OK
        assert await load_used_units(driver) == (700, 0)
        assert ids(await driver.take()) == ["rest"]

    async def test_p13_excess_usage_is_a_debt_that_delays(self, driver: StoreDriver) -> None:
        job = await claim_first_job(driver)
        await driver.settle(job, spent=usage_of_call("m", tokens=15_000))
        assert await driver.used("m", TOKENS) == 15_000
        await driver.add(new_job("b", needs=(need("m", tokens=100),)))
        claims = await driver.claim()
        assert claims.jobs == []
        assert claims.next_due == pytest.approx(60.5, abs=0.5)
        driver.clock.advance(61)
        assert ids(await driver.take()) == ["b"]

    @pytest.mark.parametrize(
        "spent", [None, UsageReport(), UsageReport(usages=(PoolUsage(pool="other", units={}),))]
    )
    async def test_p13_unknown_usage_counts_as_reserved(
        self, driver: StoreDriver, spent: UsageReport | None
    ) -> None:
        await driver.settle(await claim_first_job(driver), spent=spent)
        assert await load_used_units(driver) == (2_000, 0)

    async def test_p13_units_that_are_not_named_count_as_reserved(self, driver: StoreDriver) -> None:
        pool = PoolSettings(limits=(Limit.tokens(9_000, per="minute"), Limit.requests(9, per="minute")))
        await driver.settle(await claim_first_job(driver, pool), spent=usage_of_call("m", requests=3))
        assert [limit.used for limit in (await driver.pool("m")).limits] == [2_000, 3]

    async def test_p13_without_a_call_everything_comes_back(self, driver: StoreDriver) -> None:
        job = await claim_first_job(driver)
        await driver.settle(job, JobRelease(), CALL_NOT_MADE)
        assert await load_used_units(driver) == (0, 0)
        assert (await driver.pool("m")).reservations == 0

    async def test_p13_a_provider_that_gives_nothing_back(self, driver: StoreDriver) -> None:
        job = await claim_first_job(driver, RESERVATION_CHARGED_POOL)
        await driver.settle(job, spent=usage_of_call("m", tokens=700))
        assert await driver.used("m", TOKENS) == 2_000

    @pytest.mark.parametrize(
        "outcome",
        [Success(), RetryLater(1.0, SAMPLE_ERROR), Snooze(1.0), FinalFailure(SAMPLE_ERROR), JobRelease()],
    )
    async def test_p13_usage_is_booked_with_every_outcome(
        self, driver: StoreDriver, outcome: Success
    ) -> None:
        await driver.settle(await claim_first_job(driver), outcome, usage_of_call("m", tokens=500))
        assert await load_used_units(driver) == (500, 0)

    async def test_p13_a_second_settlement_books_nothing(self, driver: StoreDriver) -> None:
        job = await claim_first_job(driver)
        await driver.settle(job, spent=usage_of_call("m", tokens=500))
        assert await driver.settle(job, spent=usage_of_call("m", tokens=9_000)) is WriteAnswer.AGAIN
        assert await load_used_units(driver) == (500, 0)

    async def test_p13_a_settlement_frees_units_for_the_claim_in_the_same_call(
        self, driver: StoreDriver
    ) -> None:
        pool = PoolSettings(limits=(Limit.concurrent(1),))
        await driver.store.declare_pools({"m": pool})
        await driver.add(*[new_job(job, needs=(need("m"),)) for job in "ab"])
        job = await driver.take_one()
        assert await driver.take("x") == []
        assert await driver.settle(job) is WriteAnswer.OK
        assert ids(await driver.take()) == ["b"]

    async def test_p13_each_key_has_its_own_account(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools(
            {"m": PoolSettings(limits=(Limit.tokens(9, per="minute"),), keyed=True)}
        )
        await driver.add(*[new_job(key, needs=(need("m", key, tokens=5),)) for key in "ab"])
        first, second = await driver.take()
        await driver.settle(first, spent=usage_of_call("m", "b", tokens=1))
        await driver.settle(second, spent=usage_of_call("m", "b", tokens=2))
        assert (await driver.used("m", TOKENS, "a"), await driver.used("m", TOKENS, "b")) == (5, 2)


class TestStaleUsage:
    async def test_p14_reclaim_counts_units_again_and_frees_concurrent_units(
        self, driver: StoreDriver
    ) -> None:
        await claim_first_job(driver)
        driver.clock.advance(LEASE_SECONDS)
        await driver.store.reclaim()
        assert await load_used_units(driver) == (4_000, 0)
        assert (await driver.pool("m")).reservations == 0
        driver.clock.advance(61 - LEASE_SECONDS)
        assert await load_used_units(driver) == (2_000, 0)
        driver.clock.advance(LEASE_SECONDS)
        assert await load_used_units(driver) == (0, 0)

    async def test_p14_the_death_of_a_worker_counts_units_again(self, driver: StoreDriver) -> None:
        await claim_first_job(driver)
        await driver.store.reclaim(["w"])
        assert (await driver.pool("m")).reservations == 0
        assert await load_used_units(driver) == (4_000, 0)

    async def test_p14_a_claim_whose_reply_was_lost_counts_units_again(self, driver: StoreDriver) -> None:
        await claim_first_job(driver)
        await driver.beat()
        assert await load_used_units(driver) == (4_000, 0)

    async def test_p13_i6_a_stale_settlement_after_the_reclaim_books_nothing(
        self, driver: StoreDriver
    ) -> None:
        job = await claim_first_job(driver)
        await driver.store.reclaim(["w"])
        assert await driver.settle(job, spent=usage_of_call("m", tokens=500)) is WriteAnswer.STALE
        assert await load_used_units(driver) == (4_000, 0)

    async def test_p13_p14_a_cancelled_runs_usage_is_booked_once(self, driver: StoreDriver) -> None:
        """The usage of a cancelled run is counted exactly once. The store accepts the report if the
        reservation still exists; the state of the job does not matter (I6)."""
        job = await claim_first_job(driver)
        await driver.amend(CancelJobs(), "a")
        assert await load_used_units(driver) == (2_000, 1)
        assert (await driver.pool("m")).reservations == 1
        assert await driver.settle(job, spent=usage_of_call("m", tokens=500)) is WriteAnswer.STALE
        assert await load_used_units(driver) == (500, 0)
        assert await driver.settle(job, spent=usage_of_call("m", tokens=9_000)) is WriteAnswer.STALE
        assert await load_used_units(driver) == (500, 0)

    async def test_p14_a_cancelled_runs_units_end_with_its_lease(self, driver: StoreDriver) -> None:
        job = await claim_first_job(driver)
        driver.clock.advance(10)
        await driver.beat(job)
        await driver.amend(CancelJobs(), "a")
        driver.clock.advance(LEASE_SECONDS - 1)
        assert await driver.beat(job) == (("a",), ())
        await driver.store.reclaim()
        assert (await driver.pool("m")).reservations == 1, "its lease still runs"
        driver.clock.advance(1)
        assert await driver.store.reclaim() is not None
        assert (await driver.pool("m")).reservations == 0
        assert await load_used_units(driver) == (4_000, 0)

    async def test_p14_a_cancelled_runs_units_end_with_its_worker(self, driver: StoreDriver) -> None:
        await claim_first_job(driver)
        await driver.amend(CancelJobs(), "a")
        await driver.store.reclaim(["w"])
        assert (await driver.pool("m")).reservations == 0

    async def test_p14_a_cancelled_runs_units_end_with_the_boot(self, driver: StoreDriver) -> None:
        """A running job is cancelled, and then the machine reboots, which ends the worker. A reclaim ends the
        job's reservation at once and does not wait for the end of the lease."""
        await claim_first_job(driver)
        await driver.amend(CancelJobs(), "a")
        driver.clock.reboot()
        await driver.reopen()
        await driver.store.reclaim()
        assert (await driver.pool("m")).reservations == 0

    async def test_p14_i14_another_boot_gives_nothing_back(self, driver: StoreDriver) -> None:
        """After a reboot the store cannot know how much of a rolling window has passed, so it counts all
        units as used. Units of a concurrent limit become free when their call ends."""
        job = await claim_first_job(driver)
        driver.clock.reboot()
        await driver.reopen()
        assert await load_used_units(driver) == (10_000, 1)
        await driver.settle(job, spent=usage_of_call("m", tokens=500))
        assert await load_used_units(driver) == (10_000, 0)


UNKNOWN_POOL_KEYS = (("nobody", None), ("m", "k"))


class TestObservations:
    async def test_p16_an_observation_limits_the_next_claim(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": PoolSettings(limits=(Limit.requests(10, per="minute"),))})
        await driver.add(*[new_job(f"job-{n}", needs=(need("m"),)) for n in range(12)])
        job = await driver.take_one()
        seen = Observation(pool="m", remaining={"requests per minute": 3})
        await driver.settle(job, spent=UsageReport(is_success=True, observations=(seen,)))
        assert (await driver.pool("m")).external_usage == {"requests per minute": 6}
        assert len(await driver.take("x")) == 3

    async def test_p16_a_stale_settlement_reports_observations_too(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": PoolSettings(limits=(Limit.requests(10, per="minute"),))})
        await driver.add(new_job("a", needs=(need("m"),)))
        job = await driver.take_one()
        await driver.store.reclaim(["w"])
        seen = Observation(pool="m", remaining={"requests per minute": 0})
        assert await driver.settle(job, spent=UsageReport(observations=(seen,))) is WriteAnswer.STALE
        assert await driver.take() == []

    async def test_p16_a_job_without_units_may_report_a_refusal_once(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": PoolSettings(limits=(Limit.requests(10, per="minute"),))})
        await driver.add("a")
        job = await driver.take_one()
        seen = Observation(pool="m", remaining={"requests per minute": 4})
        assert await driver.settle(job, spent=UsageReport(observations=(seen,))) is WriteAnswer.OK
        assert await driver.used("m", "requests per minute") == 6
        driver.clock.advance(61)
        assert await driver.settle(job, spent=UsageReport(observations=(seen,))) is WriteAnswer.AGAIN
        assert await driver.used("m", "requests per minute") == 0

    async def test_p16_a_refund_is_booked_before_the_stated_remainder(self, driver: StoreDriver) -> None:
        job = await claim_first_job(driver)
        seen = Observation(pool="m", remaining={TOKENS: 8_800})
        spent = UsageReport(usages=(PoolUsage(pool="m", units={"tokens": 700}),), observations=(seen,))
        await driver.settle(job, spent=spent)
        assert (await driver.pool("m")).external_usage == {TOKENS: 500}
        assert await driver.used("m", TOKENS) == 1_200

    async def test_p4_an_observation_needs_no_job(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": PoolSettings(limits=(Limit.requests(10, per="minute"),))})
        await driver.store.observe([Observation(pool="m", remaining={"requests per minute": 4})])
        assert await driver.used("m", "requests per minute") == 6

    async def test_p16_undeclared_limits_are_ignored(self, driver: StoreDriver) -> None:
        job = await claim_first_job(driver)
        unknown = [Observation(pool=pool, key=key, remaining={TOKENS: 1}) for pool, key in UNKNOWN_POOL_KEYS]
        await driver.settle(job, spent=UsageReport(observations=tuple(unknown)))
        await driver.store.observe(unknown)
        assert [view.name for view in await driver.store.pools()] == ["m"]


DAY_POOL = PoolSettings(limits=(Limit.requests(50, per=Day()), Limit.concurrent(3)))
POOL_SETTINGS = {
    "m": TOKEN_POOL,
    "day": DAY_POOL,
    "bucket": PoolSettings(limits=(Limit.tokens(5_000, per="minute", shape="bucket"),)),
    "paced": PoolSettings(limits=(Limit.requests(30, per="minute", shape="paced"),)),
    "site": PoolSettings(limits=(Limit.requests(2, per="second"), Limit.concurrent(1)), keyed=True),
}
NEED_CHOICES: tuple[tuple[Need, ...], ...] = (
    (),
    (need("m", tokens=900),),
    (need("m", tokens=300), need("day")),
    (need("bucket", tokens=2_000),),
    (need("paced"), need("site", "a")),
    (need("site", "b"),),
)


class TestUnitConservation:
    @pytest.mark.parametrize("seed", range(5))
    async def test_i14_no_unit_leaks_in_random_histories(self, driver: StoreDriver, seed: int) -> None:
        """No unit is lost in a random history. After all jobs have ended and two days have passed, every
        limit is free and no reservation is left."""
        chance = Random(seed)  # noqa: S311 - to be replayed is the point
        await driver.store.declare_pools(POOL_SETTINGS)
        held: list[ClaimedJob] = []
        for step in range(60):
            await driver.add(
                new_job(f"job-{step}", needs=chance.choice(NEED_CHOICES), key=chance.choice((None, "k")))
            )
            held += await driver.take(chance.choice("wx"), limit=chance.randint(0, 4))
            await _random_event(driver, chance, held)
            await _check_concurrency_recount(driver)
        for _ in range(300):
            if not any(job.state in LIVE for job in await _load_all_accounts(driver)):
                break
            driver.clock.advance(40)
            await driver.store.reclaim()
            for job in await driver.take("z", limit=50):
                await driver.settle(job, spent=CALL_NOT_MADE)
        driver.clock.advance(2 * 86_400 + 7_200)
        await driver.store.reclaim()
        views = await driver.store.pools()
        assert [view.reservations for view in views] == [0] * len(POOL_SETTINGS)
        assert [(view.name, limit) for view in views for limit in view.limits if limit.used] == []


async def _random_event(driver: StoreDriver, chance: Random, held: list[ClaimedJob]) -> None:
    driver.clock.advance(chance.choice((0.0, 0.1, 1.0, 20.0)))
    event = chance.randint(0, 9)
    if event <= 5 and held:
        job = chance.choice(held)
        outcome = chance.choice(
            (Success(), RetryLater(1.0, SAMPLE_ERROR), JobRelease(), FinalFailure(SAMPLE_ERROR))
        )
        spent = chance.choice(
            (None, CALL_NOT_MADE, usage_of_call("m", tokens=5_000), usage_of_call("bucket", tokens=10))
        )
        await driver.settle(job, outcome, spent)
    elif event == 6:
        await driver.store.reclaim([chance.choice("wx")])
    elif event == 7 and held:
        await driver.amend(CancelJobs(), chance.choice(held).id)
    elif event == 8 and held:
        job = chance.choice(held)
        await driver.store.reserve(job.id, job.fence, job.claim, chance.choice(NEED_CHOICES[1]))
    elif event == 9:
        await driver.beat(*held[::2], worker=chance.choice("wx"))
    await driver.store.reclaim()


async def _check_concurrency_recount(driver: StoreDriver) -> None:
    """Checks every limit on concurrent calls: its used units equal the number of reservations, and they do
    not exceed its amount."""
    for view in await driver.store.pools():
        for limit in view.limits:
            if limit.name == CALLS_AT_ONCE:
                assert limit.used == (view.reservations if view.key or view.name != "site" else 0)
                assert limit.used <= limit.amount


async def _load_all_accounts(driver: StoreDriver) -> tuple[Job, ...]:
    return (await driver.store.find(Filter(), 10_000)).jobs
