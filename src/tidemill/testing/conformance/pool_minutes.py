"""What a pool did minute by minute stays when the jobs are gone."""

# ruff: noqa: S101 - a test suite asserts, and its numbers are its data
from __future__ import annotations

from tidemill.core.limits import Limit
from tidemill.core.outcomes import Release
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import DAY
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.spending import Observation
from tidemill.testing.conformance.driver import UNMADE, Driver, need, new, refusing, using

MODEL = PoolSettings(
    limits=(Limit.requests(99, per="minute"), Limit.tokens(99_000, per="minute"), Limit.concurrent(9))
)
SITE = PoolSettings(limits=(Limit.requests(9, per="second"),), keyed=True)


class TestPoolHistory:
    async def test_p8_calls_units_and_refusals_by_the_minute(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": MODEL})
        await drive.add(*[new(f"job-{n}", needs=(need("m", tokens=500),)) for n in range(4)])
        first, second, third, fourth = await drive.take()
        await drive.settle(first, spent=using("m", tokens=700))
        await drive.settle(second)  # nobody said: all that was reserved
        await drive.settle(third, Release(), spent=UNMADE)
        drive.clock.advance(60)
        await drive.settle(fourth, Release(), spent=refusing("m", Reason.RATE, retry_after=1.0))
        minute = drive.clock.wall() // 60 * 60
        before, after = await drive.store.pool_history("m", 0)
        assert (before.at, before.calls) == (minute - 60, 2)
        assert before.units == {"requests": 2, "tokens": 1200}
        assert before.refusals == {}
        assert (after.at, after.calls, after.refusals) == (minute, 1, {"rate": 1})
        assert await drive.store.pool_history("m", minute) == [after]

    async def test_p8_all_keys_together(self, drive: Driver) -> None:
        await drive.store.declare_pools({"site": SITE})
        await drive.add(*[new(key, needs=(need("site", key),)) for key in "abc"])
        for job in await drive.take():
            await drive.settle(job)
        (minute,) = await drive.store.pool_history("site", 0)
        assert (minute.calls, minute.units) == (3, {"requests": 3})

    async def test_p8_units_that_are_counted_anew_were_used_as_far_as_anybody_knows(
        self, drive: Driver
    ) -> None:
        await drive.store.declare_pools({"m": MODEL})
        await drive.add(new("a", needs=(need("m", tokens=500),)))
        await drive.take_one()
        drive.clock.advance(31)
        await drive.store.reclaim()
        (minute,) = await drive.store.pool_history("m", 0)
        assert (minute.calls, minute.units) == (1, {"requests": 1, "tokens": 500})

    async def test_p8_a_refusal_without_a_job_counts(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": MODEL})
        told = Observation(pool="m", refusal=Refusal(reason=Reason.OVERLOAD))
        await drive.store.observe([told, told])
        (minute,) = await drive.store.pool_history("m", 0)
        assert (minute.calls, minute.units, minute.refusals) == (0, {}, {"overload": 2})

    async def test_p8_it_outlives_its_jobs_and_ends_after_eight_days(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": MODEL})
        await drive.add(new("a", needs=(need("m", tokens=1),)))
        await drive.settle(await drive.take_one())
        drive.clock.advance(7.9 * DAY)
        await drive.store.prune()
        assert len(await drive.store.pool_history("m", 0)) == 1
        drive.clock.advance(0.2 * DAY)
        await drive.store.prune()
        assert await drive.store.pool_history("m", 0) == []

    async def test_p8_a_pool_nobody_knows_has_none(self, drive: Driver) -> None:
        assert await drive.store.pool_history("nobody", 0) == []
