"""Conformance tests for pool demand, pool accounts and the per-minute history of a pool."""

from __future__ import annotations

from tidemill.core.accounts import UnitDenial, request_units
from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.core.forecast.backlog import MAX_SAMPLES_PER_LANE, Demand
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.outcomes import JobRelease
from tidemill.core.overrides import apply_override
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import DAY_SECONDS
from tidemill.core.reservations import UnitRequest
from tidemill.core.windows import Instant
from tidemill.testing.conformance.fixtures import (
    CALL_NOT_MADE,
    StoreDriver,
    need,
    new_job,
    refusal_of_call,
    usage_of_call,
)

DEMAND_POOL = PoolSettings(limits=(Limit.requests(5, per="minute"), Limit.tokens(1_000_000, per="minute")))
KEYED_DEMAND_POOL = PoolSettings(limits=(Limit.requests(2, per=10),), keyed=True)
UNITS_OF_EVERY_CALL = {"requests": 1.0, "jobs": 1.0, "concurrent": 1.0}


def tokens(amount: float) -> tuple[Need, ...]:
    return (Need("model", None, {"tokens": amount}),)


async def load_demand(driver: StoreDriver) -> list[tuple[str, int, int, tuple[Need, ...]]]:
    return [
        (demand.queue, demand.priority, demand.jobs, demand.needs) for demand in await driver.store.demand()
    ]


class TestPoolDemand:
    async def test_r10_jobs_without_pools_have_no_demand(self, driver: StoreDriver) -> None:
        await driver.add("a", new_job("b", key="k"))
        assert await driver.store.demand() == []

    async def test_r10_by_queue_lane_and_priority(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"model": DEMAND_POOL, "site": KEYED_DEMAND_POOL})
        await driver.add(new_job("a", needs=tokens(100)), new_job("b", needs=tokens(300)))
        await driver.add(new_job("urgent", needs=tokens(500), priority=1))
        await driver.add(new_job("elsewhere", needs=tokens(7)), queue="p")
        await driver.add(
            new_job("one", needs=(Need("site", "x"),)), new_job("two", needs=(Need("site", "y"),))
        )
        assert sorted(await load_demand(driver), key=repr) == [
            ("p", 5, 1, (Need("model", None, UNITS_OF_EVERY_CALL | {"tokens": 7.0}),)),
            ("q", 1, 1, (Need("model", None, UNITS_OF_EVERY_CALL | {"tokens": 500.0}),)),
            ("q", 5, 1, (Need("site", "x", UNITS_OF_EVERY_CALL),)),
            ("q", 5, 1, (Need("site", "y", UNITS_OF_EVERY_CALL),)),
            ("q", 5, 2, (Need("model", None, UNITS_OF_EVERY_CALL | {"tokens": 200.0}),)),
        ]

    async def test_r10_only_ready_jobs_have_demand(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"model": DEMAND_POOL})
        await driver.add(
            new_job("later", needs=tokens(1), delay=60.0), *(new_job(f"{n}", needs=tokens(1)) for n in "ab")
        )
        assert [demand.jobs for demand in await driver.store.demand()] == [2]
        job = await driver.take_one()
        assert [demand.jobs for demand in await driver.store.demand()] == [1]
        await driver.settle(job)
        await driver.take()
        assert await driver.store.demand() == []

    async def test_r10_demand_counts_all_jobs_and_averages_the_first(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"model": DEMAND_POOL})
        await driver.add(*(new_job(f"{n}", needs=tokens(10)) for n in range(MAX_SAMPLES_PER_LANE)))
        await driver.add(new_job("last", needs=tokens(900_000)))
        (found,) = await driver.store.demand()
        assert isinstance(found, Demand)
        assert (found.jobs, found.needs[0].units["tokens"]) == (MAX_SAMPLES_PER_LANE + 1, 10.0)


class TestPoolAccounts:
    async def test_p7_every_wait_can_be_computed_from_a_view(self, driver: StoreDriver) -> None:
        """The wait for units that is computed from a pool's view equals the wait that `reserve` returns."""
        await driver.store.declare_pools({"model": DEMAND_POOL, "site": KEYED_DEMAND_POOL})
        await driver.add(*(new_job(f"{n}", needs=tokens(100)) for n in range(4)))
        await driver.add(new_job("key", needs=(Need("site", "x"),)))
        first, *_ = await driver.take()
        driver.clock.advance(7.0)
        model = Need("model", None, {"tokens": 2.0})
        for requested in (model, Need("site", "x"), model):
            view = await driver.pool(requested.pool, requested.key)
            now = Instant(driver.clock.wall(), driver.clock.boot())
            settings = apply_override(view.declared, view.override, now.wall)
            expected = request_units(
                settings, view.account, UnitRequest(first.id, requested.units, first.priority), now
            )
            answer = await driver.store.reserve(first.id, first.fence, first.claim, requested)
            assert answer == (expected.wait if isinstance(expected, UnitDenial) else None)


HISTORY_POOL = PoolSettings(
    limits=(Limit.requests(99, per="minute"), Limit.tokens(99_000, per="minute"), Limit.concurrent(9))
)
KEYED_HISTORY_POOL = PoolSettings(limits=(Limit.requests(9, per="second"),), keyed=True)


class TestPoolHistory:
    async def test_p8_calls_units_and_refusals_by_the_minute(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": HISTORY_POOL})
        await driver.add(*[new_job(f"job-{n}", needs=(need("m", tokens=500),)) for n in range(4)])
        first, second, third, fourth = await driver.take()
        await driver.settle(first, spent=usage_of_call("m", tokens=700))
        await driver.settle(second)  # without a report, all reserved units count
        await driver.settle(third, JobRelease(), spent=CALL_NOT_MADE)
        driver.clock.advance(60)
        await driver.settle(fourth, JobRelease(), spent=refusal_of_call("m", Reason.RATE, retry_after=1.0))
        minute = driver.clock.wall() // 60 * 60
        before, after = await driver.store.pool_history("m", 0)
        assert (before.at, before.calls) == (minute - 60, 2)
        assert before.units == {"requests": 2, "tokens": 1200}
        assert before.refusals == {}
        assert (after.at, after.calls, after.refusals) == (minute, 1, {"rate": 1})
        assert await driver.store.pool_history("m", minute) == [after]

    async def test_p8_history_sums_all_keys(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"site": KEYED_HISTORY_POOL})
        await driver.add(*[new_job(key, needs=(need("site", key),)) for key in "abc"])
        for job in await driver.take():
            await driver.settle(job)
        (minute,) = await driver.store.pool_history("site", 0)
        assert (minute.calls, minute.units) == (3, {"requests": 3})

    async def test_p8_units_that_are_counted_again_are_in_the_history(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": HISTORY_POOL})
        await driver.add(new_job("a", needs=(need("m", tokens=500),)))
        await driver.take_one()
        driver.clock.advance(31)
        await driver.store.reclaim()
        (minute,) = await driver.store.pool_history("m", 0)
        assert (minute.calls, minute.units) == (1, {"requests": 1, "tokens": 500})

    async def test_p8_a_refusal_without_a_job_counts(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": HISTORY_POOL})
        observation = Observation(pool="m", refusal=Refusal(reason=Reason.OVERLOAD))
        await driver.store.observe([observation, observation])
        (minute,) = await driver.store.pool_history("m", 0)
        assert (minute.calls, minute.units, minute.refusals) == (0, {}, {"overload": 2})

    async def test_p8_history_outlives_its_jobs_and_ends_after_eight_days(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": HISTORY_POOL})
        await driver.add(new_job("a", needs=(need("m", tokens=1),)))
        await driver.settle(await driver.take_one())
        driver.clock.advance(7.9 * DAY_SECONDS)
        await driver.store.prune()
        assert len(await driver.store.pool_history("m", 0)) == 1
        driver.clock.advance(0.2 * DAY_SECONDS)
        await driver.store.prune()
        assert await driver.store.pool_history("m", 0) == []

    async def test_p8_an_unknown_pool_has_no_history(self, driver: StoreDriver) -> None:
        assert await driver.store.pool_history("nobody", 0) == []
