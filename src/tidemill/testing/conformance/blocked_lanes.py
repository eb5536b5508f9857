"""Conformance tests for blocked lanes: which lanes a claim skips, and what unblocks them. Lanes that need the
same pools form a group and are blocked together."""

from __future__ import annotations

import pytest

from tidemill.contract.coordination import queue_topic
from tidemill.core.batching import BatchPolicy
from tidemill.core.feedback import Observation
from tidemill.core.limits import Limit, Per
from tidemill.core.operator_changes import CancelJobs, DeleteJobs, OperatorChange
from tidemill.core.outcomes import JobRelease, Success
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.queues import QueueSettings
from tidemill.core.unique_keys import Unique
from tidemill.testing.conformance.fixtures import StoreDriver, ids, need, new_job, usage_of_call
from tidemill.testing.conformance.wakeups import MAX_WAIT_SECONDS, arm_listener


def keyed_pool(amount: float, per: Per = "hour", reserved_share: float = 0.0) -> PoolSettings:
    return PoolSettings(limits=(Limit.requests(amount, per=per),), keyed=True, reserved_share=reserved_share)


async def report_allowance(driver: StoreDriver, amount: float) -> None:
    """Tells the store which limit the provider reports for the key "k" of pool `s`: `amount` requests per
    hour."""
    seen = Observation(pool="s", key="k", amounts={"requests per hour": amount})
    await driver.store.observe([seen])


class TestBlockedLanes:
    async def test_p15_a_full_queue_keeps_workers_idle_after_a_wait_ends(self, driver: StoreDriver) -> None:
        """The pool of a job has free units again, but the job's queue is at its concurrency limit. A claim
        returns no due time; a past due time would make idle workers claim in a loop."""
        await driver.store.declare({"q": QueueSettings(concurrency=1)})
        await driver.store.declare_pools({"s": keyed_pool(1, 10.0)})
        await driver.add(new_job("a", needs=(need("s", "x"),)))
        await driver.settle(await driver.take_one(), Success(), usage_of_call("s", "x", requests=1))
        await driver.add(new_job("b", needs=(need("s", "x"),)))
        assert (await driver.claim()).next_due == pytest.approx(10.5, abs=0.1)
        await driver.add(new_job("long", priority=0))
        job = await driver.take_one()
        driver.clock.advance(60)
        assert [(await driver.claim("v")).next_due for _ in range(2)] == [None, None]
        await driver.settle(job)
        assert ids(await driver.take()) == ["b"]

    async def test_i1_lanes_that_open_during_a_claim_are_served_once(self, driver: StoreDriver) -> None:
        """A claim that unblocks lanes while it runs returns each job of these lanes only once. Here the wall
        clock jumps past the end of a pool's override."""
        await driver.store.declare_pools({"s": keyed_pool(3), "t": keyed_pool(1)})
        changes = LimitChanges(amounts={"requests per hour": 3.0})
        await driver.store.override_pool("s", changes, by="me", until=driver.clock.wall() + 5000)
        await driver.add(
            *[new_job(f"k{n}-{m}", needs=(need("s", f"k{n}"),)) for n in range(5) for m in range(4)]
        )
        await driver.add(new_job("first", key="o", needs=(need("t", "t0"),)))
        await driver.take()
        await driver.add(*[new_job(f"z{m}", needs=(need("s", "z"),)) for m in range(2)])
        await driver.add(*[new_job(f"f{m}", key=f"f{m}", needs=(need("t", "t0"),)) for m in range(11)])
        driver.clock.step_wall(6000)
        assert ids(await driver.take(limit=2)) == ["z0", "z1"]

    async def test_p12_lane_names_of_different_pools_never_collide(self, driver: StoreDriver) -> None:
        """Lanes with different pools or keys never share a name. Keys are often URLs and may contain any
        separator."""
        await driver.store.declare_pools({"p": keyed_pool(9), "q": keyed_pool(9), "p/x+q": keyed_pool(9)})
        rule = BatchPolicy(max_items=5)
        await driver.add(
            new_job("a", batching=rule, needs=(need("p", "x"), need("q", "y"))),
            new_job("b", batching=rule, needs=(need("p", "x+q/y"),)),
            new_job("c", batching=rule, needs=(need("p/x+q", "y"),)),
            new_job("d", batching=rule, needs=(need("p", "x\\+q/y"),)),
        )
        assert [job.call for job in await driver.take()] == ["a", "b", "c", "d"]

    async def test_p12_a_group_is_blocked_behind_a_full_lane(self, driver: StoreDriver) -> None:
        """Two lanes need a used-up pool, and the more urgent lane has also reached its key limit. A claim
        reports that nothing more can start (`more` is False)."""
        await driver.store.declare({"q": QueueSettings(key_concurrency=1)})
        await driver.store.declare_pools({"m": PoolSettings(limits=(Limit.requests(1, per="hour"),))})
        await driver.add(
            new_job("runs", key="k", priority=0), new_job("uses", needs=(need("m"),), priority=0)
        )
        await driver.take()
        await driver.add(new_job("full", key="k", priority=3, needs=(need("m"),)))
        await driver.add(new_job("low", priority=9, needs=(need("m"),)))
        assert [(await driver.claim()).more for _ in range(3)] == [False] * 3

    async def test_p12_a_lane_opens_for_the_more_urgent_job_in_its_place(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"s": keyed_pool(4, reserved_share=0.5)})
        await driver.add(*[new_job(f"x{n}", needs=(need("s", "a"),)) for n in range(2)])
        await driver.take()
        rule = Unique("k", on_conflict="replace")
        await driver.add(new_job("old", needs=(need("s", "a"),), unique=rule))
        assert await driver.take() == []
        await driver.add(new_job("urgent", needs=(need("s", "a"),), unique=rule, priority=0))
        assert ids(await driver.take()) == ["urgent"]

    async def test_p12_a_lane_opens_when_its_first_job_leaves(self, driver: StoreDriver) -> None:
        """When the first job of a blocked lane is cancelled, the next claim tries the lane again. The next
        job may need fewer units."""
        await driver.store.declare_pools(
            {"s": PoolSettings(limits=(Limit.tokens(100, per=7200),), keyed=True)}
        )
        await driver.add(new_job("a", needs=(need("s", "k", tokens=50),)))
        await driver.settle(await driver.take_one(), Success(), usage_of_call("s", "k", tokens=50))
        await driver.add(new_job("big", needs=(need("s", "k", tokens=90),)))
        await driver.add(new_job("small", needs=(need("s", "k", tokens=5),)))
        assert await driver.take() == []
        await driver.amend(CancelJobs(), "big")
        assert ids(await driver.take()) == ["small"]

    async def test_p15_a_limit_that_is_stated_higher_opens_the_lanes_that_wait(
        self, driver: StoreDriver
    ) -> None:
        await driver.store.declare_pools({"s": keyed_pool(5)})
        await report_allowance(driver, 1)
        await driver.add(*[new_job(f"a{n}", needs=(need("s", "k"),)) for n in range(3)])
        assert ids(await driver.take()) == ["a0"]
        await report_allowance(driver, 3)
        driver.clock.advance(61)
        assert await driver.take() == [], "a single report is not believed"
        await report_allowance(driver, 3)
        assert ids(await driver.take()) == ["a1", "a2"]

    async def test_b2_expired_jobs_do_not_complete_a_batch(self, driver: StoreDriver) -> None:
        rule = BatchPolicy(max_items=5, linger=10.0)
        await driver.add(new_job("gone", batching=rule, expires=1.0), new_job("a", batching=rule))
        driver.clock.advance(2)
        claims = await driver.claim(shares=(("q", 0),))
        assert (claims.jobs, claims.batch_waits, claims.more) == ([], True, False)
        assert claims.next_due == pytest.approx(8)

    async def test_b5_a_job_that_left_its_batch_names_no_call(self, driver: StoreDriver) -> None:
        rule, unique = BatchPolicy(max_items=2, linger=0.0), Unique("k", on_conflict="merge")
        await driver.add(new_job("a", batching=rule), new_job("b", batching=rule, unique=unique))
        for job in await driver.take():
            await driver.settle(job, JobRelease())
        await driver.add(new_job("c", task="alone", unique=unique))
        for number in (50, 50):
            jobs = await driver.take(number=number)
            assert {job.id: job.call for job in jobs} == {"a": "a", "b": ""}

    @pytest.mark.parametrize("change", [CancelJobs(), DeleteJobs()])
    async def test_p15_a_waiting_job_that_ends_frees_its_hold(
        self, driver: StoreDriver, change: OperatorChange
    ) -> None:
        """When a waiting job is cancelled or deleted, the capacity that the pool held for it is free.
        Listeners of other queues wake up, and their jobs start."""
        await driver.store.declare_pools({"m": PoolSettings(limits=(Limit.tokens(1000, per="hour"),))})
        await driver.add(*[new_job(f"a{n}", needs=(need("m", tokens=50),)) for n in range(5)])
        for job in await driver.take():
            await driver.settle(job, Success(), usage_of_call("m", tokens=50))
        await driver.add(new_job("big", needs=(need("m", tokens=900),)))
        for _ in range(2):
            assert await driver.take() == []
            driver.clock.advance(2)
        driver.clock.advance(60)
        await driver.add(new_job("small", needs=(need("m", tokens=150),)), queue="other")
        assert await driver.take(shares=(("other", 9),)) == [], "it would delay the large call"
        async with arm_listener(driver, queue_topic("other")) as listener:
            await driver.amend(change, "big")
            assert await listener.wait(MAX_WAIT_SECONDS)
        assert ids(await driver.take(shares=(("other", 9),))) == ["small"]
