"""What becomes of the units an attempt took: booked, given back or counted anew, exactly once (I14)."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

from random import Random

import pytest

from tidemill.core.calendars import Day
from tidemill.core.changes import Cancel
from tidemill.core.claims import Claimed
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.outcomes import Answer, Done, Fail, Release, Retrying, Snooze
from tidemill.core.pools import PoolSettings
from tidemill.core.spending import Observation, Spent, Usage
from tidemill.core.states import LIVE
from tidemill.testing.conformance.driver import LEASE, OOPS, UNMADE, Driver, ids, need, new, using

TOKENS, AT_ONCE = "tokens per minute", "calls at once"
MODEL = PoolSettings(limits=(Limit.tokens(10_000, per="minute"), Limit.concurrent(3)))
RESERVED = PoolSettings(limits=(Limit.tokens(10_000, per="minute", charge="reserved"),))


async def begin(drive: Driver, pool: PoolSettings = MODEL, jobs: str = "a", tokens: float = 2_000) -> Claimed:
    """Jobs that need the pool `m`, and the first of them in hand."""
    await drive.store.declare_pools({"m": pool})
    await drive.add(*[new(job, needs=(need("m", tokens=tokens),)) for job in jobs])
    return await drive.take_one()


async def used(drive: Driver) -> tuple[float, float]:
    return await drive.used("m", TOKENS), await drive.used("m", AT_ONCE)


class TestSpent:
    async def test_p13_what_was_not_used_is_free_at_the_next_claim(self, drive: Driver) -> None:
        """Estimate 2 000, actual 700."""
        job = await begin(drive)
        await drive.add(new("rest", needs=(need("m", tokens=9_300),)))
        assert await drive.take() == []
        assert await drive.settle(job, spent=using("m", tokens=700)) is Answer.OK
        assert await used(drive) == (700, 0)
        assert ids(await drive.take()) == ["rest"]

    async def test_p13_what_was_used_on_top_is_a_debt_that_delays(self, drive: Driver) -> None:
        job = await begin(drive)
        await drive.settle(job, spent=using("m", tokens=15_000))
        assert await drive.used("m", TOKENS) == 15_000
        await drive.add(new("b", needs=(need("m", tokens=100),)))
        claims = await drive.claim()
        assert claims.jobs == []
        assert claims.next_due == pytest.approx(60.5, abs=0.5)
        drive.clock.advance(61)
        assert ids(await drive.take()) == ["b"]

    @pytest.mark.parametrize("spent", [None, Spent(), Spent(usages=(Usage(pool="other", units={}),))])
    async def test_p13_what_nobody_knows_counts_as_reserved(self, drive: Driver, spent: Spent | None) -> None:
        await drive.settle(await begin(drive), spent=spent)
        assert await used(drive) == (2_000, 0)

    async def test_p13_units_that_are_not_named_count_as_reserved(self, drive: Driver) -> None:
        pool = PoolSettings(limits=(Limit.tokens(9_000, per="minute"), Limit.requests(9, per="minute")))
        await drive.settle(await begin(drive, pool), spent=using("m", requests=3))
        assert [limit.used for limit in (await drive.pool("m")).limits] == [2_000, 3]

    async def test_p13_without_a_call_everything_comes_back(self, drive: Driver) -> None:
        job = await begin(drive)
        await drive.settle(job, Release(), UNMADE)
        assert await used(drive) == (0, 0)
        assert (await drive.pool("m")).reservations == 0

    async def test_p13_a_provider_that_gives_nothing_back(self, drive: Driver) -> None:
        job = await begin(drive, RESERVED)
        await drive.settle(job, spent=using("m", tokens=700))
        assert await drive.used("m", TOKENS) == 2_000

    @pytest.mark.parametrize("outcome", [Done(), Retrying(1.0, OOPS), Snooze(1.0), Fail(OOPS), Release()])
    async def test_p13_whatever_the_outcome(self, drive: Driver, outcome: Done) -> None:
        await drive.settle(await begin(drive), outcome, using("m", tokens=500))
        assert await used(drive) == (500, 0)

    async def test_p13_a_second_settlement_books_nothing(self, drive: Driver) -> None:
        job = await begin(drive)
        await drive.settle(job, spent=using("m", tokens=500))
        assert await drive.settle(job, spent=using("m", tokens=9_000)) is Answer.AGAIN
        assert await used(drive) == (500, 0)

    async def test_p13_the_same_trip_claims_what_it_freed(self, drive: Driver) -> None:
        pool = PoolSettings(limits=(Limit.concurrent(1),))
        await drive.store.declare_pools({"m": pool})
        await drive.add(*[new(job, needs=(need("m"),)) for job in "ab"])
        job = await drive.take_one()
        assert await drive.take("x") == []
        assert await drive.settle(job) is Answer.OK
        assert ids(await drive.take()) == ["b"]

    async def test_p13_each_key_has_its_own(self, drive: Driver) -> None:
        await drive.store.declare_pools(
            {"m": PoolSettings(limits=(Limit.tokens(9, per="minute"),), keyed=True)}
        )
        await drive.add(*[new(key, needs=(need("m", key, tokens=5),)) for key in "ab"])
        first, second = await drive.take()
        await drive.settle(first, spent=using("m", "b", tokens=1))
        await drive.settle(second, spent=using("m", "b", tokens=2))
        assert (await drive.used("m", TOKENS, "a"), await drive.used("m", TOKENS, "b")) == (5, 2)


class TestLostHolders:
    async def test_p14_reclaim_counts_anew_and_frees_what_was_held_at_once(self, drive: Driver) -> None:
        await begin(drive)
        drive.clock.advance(LEASE)
        await drive.store.reclaim()
        assert await used(drive) == (4_000, 0)
        assert (await drive.pool("m")).reservations == 0
        drive.clock.advance(61 - LEASE)
        assert await used(drive) == (2_000, 0)
        drive.clock.advance(LEASE)
        assert await used(drive) == (0, 0)

    async def test_p14_so_does_the_death_of_a_worker(self, drive: Driver) -> None:
        await begin(drive)
        await drive.store.reclaim(["w"])
        assert (await drive.pool("m")).reservations == 0
        assert await used(drive) == (4_000, 0)

    async def test_p14_so_does_a_claim_whose_reply_was_lost(self, drive: Driver) -> None:
        await begin(drive)
        await drive.beat()
        assert await used(drive) == (4_000, 0)

    async def test_p13_i6_a_stale_settlement_after_the_reclaim_books_nothing(self, drive: Driver) -> None:
        job = await begin(drive)
        await drive.store.reclaim(["w"])
        assert await drive.settle(job, spent=using("m", tokens=500)) is Answer.STALE
        assert await used(drive) == (4_000, 0)

    async def test_p13_p14_a_cancelled_runs_usage_is_booked_once(self, drive: Driver) -> None:
        """I6: usage is fenced by its reservation, not by the job."""
        job = await begin(drive)
        await drive.amend(Cancel(), "a")
        assert await used(drive) == (2_000, 1)
        assert (await drive.pool("m")).reservations == 1
        assert await drive.settle(job, spent=using("m", tokens=500)) is Answer.STALE
        assert await used(drive) == (500, 0)
        assert await drive.settle(job, spent=using("m", tokens=9_000)) is Answer.STALE
        assert await used(drive) == (500, 0)

    async def test_p14_a_cancelled_runs_units_end_with_its_lease(self, drive: Driver) -> None:
        job = await begin(drive)
        drive.clock.advance(10)
        await drive.beat(job)
        await drive.amend(Cancel(), "a")
        drive.clock.advance(LEASE - 1)
        assert await drive.beat(job) == (("a",), ())
        await drive.store.reclaim()
        assert (await drive.pool("m")).reservations == 1, "its lease still runs"
        drive.clock.advance(1)
        assert await drive.store.reclaim() is not None
        assert (await drive.pool("m")).reservations == 0
        assert await used(drive) == (4_000, 0)

    async def test_p14_a_cancelled_runs_units_end_with_its_worker(self, drive: Driver) -> None:
        await begin(drive)
        await drive.amend(Cancel(), "a")
        await drive.store.reclaim(["w"])
        assert (await drive.pool("m")).reservations == 0

    async def test_p14_a_cancelled_runs_units_end_with_the_boot(self, drive: Driver) -> None:
        """The worker died with the boot, so no lease of that boot has to be waited for."""
        await begin(drive)
        await drive.amend(Cancel(), "a")
        drive.clock.reboot()
        await drive.reopen()
        await drive.store.reclaim()
        assert (await drive.pool("m")).reservations == 0

    async def test_p14_i14_another_boot_gives_nothing_back(self, drive: Driver) -> None:
        """What a window of another boot has left nobody knows; what is held at once is known."""
        job = await begin(drive)
        drive.clock.reboot()
        await drive.reopen()
        assert await used(drive) == (10_000, 1)
        await drive.settle(job, spent=using("m", tokens=500))
        assert await used(drive) == (10_000, 0)


NOWHERE = (("nobody", None), ("m", "k"))


class TestObservations:
    async def test_p16_what_one_worker_sees_limits_the_next_claim(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": PoolSettings(limits=(Limit.requests(10, per="minute"),))})
        await drive.add(*[new(f"job-{n}", needs=(need("m"),)) for n in range(12)])
        job = await drive.take_one()
        seen = Observation(pool="m", remaining={"requests per minute": 3})
        await drive.settle(job, spent=Spent(well=True, observations=(seen,)))
        assert (await drive.pool("m")).foreign == {"requests per minute": 6}
        assert len(await drive.take("x")) == 3

    async def test_p16_also_when_the_settlement_is_stale(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": PoolSettings(limits=(Limit.requests(10, per="minute"),))})
        await drive.add(new("a", needs=(need("m"),)))
        job = await drive.take_one()
        await drive.store.reclaim(["w"])
        seen = Observation(pool="m", remaining={"requests per minute": 0})
        assert await drive.settle(job, spent=Spent(observations=(seen,))) is Answer.STALE
        assert await drive.take() == []

    async def test_p16_a_job_without_units_may_tell_of_a_pool_once(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": PoolSettings(limits=(Limit.requests(10, per="minute"),))})
        await drive.add("a")
        job = await drive.take_one()
        seen = Observation(pool="m", remaining={"requests per minute": 4})
        assert await drive.settle(job, spent=Spent(observations=(seen,))) is Answer.OK
        assert await drive.used("m", "requests per minute") == 6
        drive.clock.advance(61)
        assert await drive.settle(job, spent=Spent(observations=(seen,))) is Answer.AGAIN
        assert await drive.used("m", "requests per minute") == 0

    async def test_p16_a_refund_is_booked_before_the_provider_is_believed(self, drive: Driver) -> None:
        job = await begin(drive)
        seen = Observation(pool="m", remaining={TOKENS: 8_800})
        spent = Spent(usages=(Usage(pool="m", units={"tokens": 700}),), observations=(seen,))
        await drive.settle(job, spent=spent)
        assert (await drive.pool("m")).foreign == {TOKENS: 500}
        assert await drive.used("m", TOKENS) == 1_200

    async def test_p4_without_a_job(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": PoolSettings(limits=(Limit.requests(10, per="minute"),))})
        await drive.store.observe([Observation(pool="m", remaining={"requests per minute": 4})])
        assert await drive.used("m", "requests per minute") == 6

    async def test_p16_what_nobody_declared_is_passed_over(self, drive: Driver) -> None:
        job = await begin(drive)
        unknown = [Observation(pool=pool, key=key, remaining={TOKENS: 1}) for pool, key in NOWHERE]
        await drive.settle(job, spent=Spent(observations=tuple(unknown)))
        await drive.store.observe(unknown)
        assert [view.name for view in await drive.store.pools()] == ["m"]


DAY_POOL = PoolSettings(limits=(Limit.requests(50, per=Day()), Limit.concurrent(3)))
POOLS = {
    "m": MODEL,
    "day": DAY_POOL,
    "bucket": PoolSettings(limits=(Limit.tokens(5_000, per="minute", shape="bucket"),)),
    "paced": PoolSettings(limits=(Limit.requests(30, per="minute", shape="paced"),)),
    "site": PoolSettings(limits=(Limit.requests(2, per="second"), Limit.concurrent(1)), keyed=True),
}
NEEDS: tuple[tuple[Need, ...], ...] = (
    (),
    (need("m", tokens=900),),
    (need("m", tokens=300), need("day")),
    (need("bucket", tokens=2_000),),
    (need("paced"), need("site", "a")),
    (need("site", "b"),),
)


class TestConservation:
    @pytest.mark.parametrize("seed", range(5))
    async def test_i14_nothing_leaks_whatever_happens(self, drive: Driver, seed: int) -> None:
        """After everything ended and two days passed every limit is free, and no reservation is left."""
        chance = Random(seed)  # noqa: S311 - to be replayed is the point
        await drive.store.declare_pools(POOLS)
        held: list[Claimed] = []
        for step in range(60):
            await drive.add(new(f"job-{step}", needs=chance.choice(NEEDS), key=chance.choice((None, "k"))))
            held += await drive.take(chance.choice("wx"), limit=chance.randint(0, 4))
            await _something_happens(drive, chance, held)
            await _at_once_equals_a_recount(drive)
        for _ in range(300):
            if not any(job.state in LIVE for job in await _all(drive)):
                break
            drive.clock.advance(40)
            await drive.store.reclaim()
            for job in await drive.take("z", limit=50):
                await drive.settle(job, spent=UNMADE)
        drive.clock.advance(2 * 86_400 + 7_200)
        await drive.store.reclaim()
        views = await drive.store.pools()
        assert [view.reservations for view in views] == [0] * len(POOLS)
        assert [(view.name, limit) for view in views for limit in view.limits if limit.used] == []


async def _something_happens(drive: Driver, chance: Random, held: list[Claimed]) -> None:
    drive.clock.advance(chance.choice((0.0, 0.1, 1.0, 20.0)))
    event = chance.randint(0, 9)
    if event <= 5 and held:
        job = chance.choice(held)
        outcome = chance.choice((Done(), Retrying(1.0, OOPS), Release(), Fail(OOPS)))
        spent = chance.choice((None, UNMADE, using("m", tokens=5_000), using("bucket", tokens=10)))
        await drive.settle(job, outcome, spent)
    elif event == 6:
        await drive.store.reclaim([chance.choice("wx")])
    elif event == 7 and held:
        await drive.amend(Cancel(), chance.choice(held).id)
    elif event == 8 and held:
        job = chance.choice(held)
        await drive.store.reserve(job.id, job.fence, job.claim, chance.choice(NEEDS[1]))
    elif event == 9:
        await drive.beat(*held[::2], worker=chance.choice("wx"))
    await drive.store.reclaim()


async def _at_once_equals_a_recount(drive: Driver) -> None:
    """Every reservation takes one place, and there are never more than allowed."""
    for view in await drive.store.pools():
        for limit in view.limits:
            if limit.name == AT_ONCE:
                assert limit.used == (view.reservations if view.key or view.name != "site" else 0)
                assert limit.used <= limit.amount


async def _all(drive: Driver) -> tuple[Job, ...]:
    return (await drive.store.find(Filter(), 10_000)).jobs
