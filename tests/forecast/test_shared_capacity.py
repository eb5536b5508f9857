"""Plans beside other work: shared pools, priorities, keys, closed pools, overrides, workers, batches."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.forecast.bench import Bench, close_to, virtually
from tidemill import ConfigurationError, Limit
from tidemill.core.pools import LimitChanges

TEN = Limit.requests(10, per="minute")
OURS = range(1000, 1040)


@pytest.mark.parametrize("others", [10, 60])
def test_two_tasks_of_one_lane_go_one_after_the_other(others: int) -> None:
    async def scenario(bench: Bench) -> None:
        pool = bench.app.pool("api", TEN, Limit.tokens(5_000, per="minute"))
        small = bench.task("small", pool=pool, cost={"tokens": 100})
        large = bench.task("large", pool=pool, cost={"tokens": 1_000})
        await bench.send(large, range(others))
        plan = await bench.app.plan(small, count=len(OURS))
        assert plan.ahead == others
        await bench.send(small, OURS)
        bench.work()
        close_to(plan, await bench.done(OURS))

    virtually(scenario)


@pytest.mark.parametrize("others", [10, 200])
def test_two_queues_take_turns_on_a_pool(others: int) -> None:
    """The first turn is not predicted, and with few windows one of them can be a tenth."""
    numbers = range(1000, 1100)

    async def scenario(bench: Bench) -> None:
        pool = bench.app.pool("api", TEN)
        ours = bench.task("ours", pool=pool, queue="a")
        theirs = bench.task("theirs", pool=pool, queue="b")
        await bench.send(theirs, range(others))
        plan = await bench.app.plan(ours, count=len(numbers))
        await bench.send(ours, numbers)
        bench.work()
        close_to(plan, await bench.done(numbers))

    virtually(scenario)


@pytest.mark.parametrize("priority", [1, 5, 9])
def test_more_urgent_jobs_go_first(priority: int) -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", TEN))
        await bench.send(task, range(30))
        await bench.send(task, range(100, 130), priority=2)
        plan = await bench.app.plan(task.using(priority=priority), count=len(OURS))
        assert plan.ahead == {1: 0, 5: 60, 9: 60}[priority]
        await bench.send(task, OURS, priority=priority)
        bench.work()
        close_to(plan, await bench.done(OURS))

    virtually(scenario)


def test_each_key_has_its_own_limits() -> None:
    """Forty jobs over two hosts, one of which has thirty already."""

    async def scenario(bench: Bench) -> None:
        site = bench.app.pool("site", TEN, keyed=True)
        task = bench.task(pool=site.by(lambda number: f"host-{number % 2}"))
        await bench.send(task, range(0, 60, 2))
        plan = await bench.app.plan([task.job(number) for number in OURS])
        assert {limit.key for limit in plan.limits} == {"host-0", "host-1"}
        assert plan.bottleneck is not None
        assert plan.bottleneck.key == "host-0"
        lone = await bench.app.plan(task.job(1), count=20)
        assert lone.seconds is not None
        assert plan.seconds is not None
        assert lone.seconds < plan.seconds / 2, "nothing waits for the other host"
        await bench.send(task, OURS)
        bench.work()
        close_to(plan, await bench.done(OURS))

    virtually(scenario)


def test_a_closed_pool_opens_at_the_end_of_its_closure() -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", TEN))
        await bench.send(task, range(5))
        await bench.app.store.close_pool("api", until=bench.clock.wall() + 600, by="ann", reason="bill")
        plan = await bench.app.plan(task, count=len(OURS))
        assert "pool api is closed until" in str(plan)
        assert "(bill)" in str(plan)
        await bench.send(task, OURS)
        bench.work()
        close_to(plan, await bench.done(OURS))

    virtually(scenario)


def test_jobs_that_wait_for_an_operator_are_never_done() -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", TEN))
        await bench.app.client.store()
        await bench.app.store.close_pool("api", by="ann")
        plan = await bench.app.plan(task, count=3)
        assert (plan.done_at, plan.starts_at, plan.seconds) == (None, None, None)
        assert "not done before a person acts" in str(plan)
        assert "pool api is closed until a person opens it (closed by ann)" in str(plan)
        await bench.app.store.open_pool("api")
        await bench.app.inspect.pause("default", reason="moving house")
        plan = await bench.app.plan(task, count=3)
        assert plan.seconds is None
        assert "queue default is paused until it is resumed (moving house)" in str(plan)

    virtually(scenario)


def test_a_paused_queue_resumes_at_the_end_of_its_pause() -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", TEN))
        await bench.app.client.store()
        await bench.app.inspect.pause("default", until=bench.clock.wall() + 600)
        plan = await bench.app.plan(task, count=len(OURS))
        [paused, _] = plan.waits
        assert (paused.what, paused.until, paused.reason) == ("queue", plan.now + 600, None)
        assert re.search(r"; queue default is paused until \w+ \d+ \w+ \d\d:\d\d \w+; ", str(plan))
        await bench.send(task, OURS)
        bench.work()
        close_to(plan, await bench.done(OURS))

    virtually(scenario)


def test_a_queue_without_workers_is_reported() -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task()
        plan = await bench.app.plan(task, count=10)
        assert str(plan).endswith("; no worker serves queue default, and nothing starts until one does.")
        bench.work()
        await bench.send(task, range(1))
        await bench.done(range(1))
        assert (await bench.app.plan(task, count=10)).waits == ()

    virtually(scenario)


@pytest.mark.parametrize("urgent", [1, 5])
def test_jobs_ahead_of_two_priorities_count_once(urgent: int) -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", TEN))
        await bench.send(task, range(100), priority=0)
        await bench.send(task, range(200, 210), priority=3)
        first, last = range(1000, 1010), range(1010, 1020)
        jobs = [task.using(priority=urgent).job(number) for number in first]
        plan = await bench.app.plan([*(task.job(number) for number in last), *jobs])
        assert plan.ahead == 110
        await bench.send(task, first, priority=urgent)
        await bench.send(task, last)
        bench.work()
        close_to(plan, await bench.done(range(1000, 1020)))
        assert plan.starts_at == pytest.approx(bench.starts[1000 if urgent == 1 else 1010], rel=0, abs=70)

    virtually(scenario)


@pytest.mark.parametrize("until", [120, 100_000])
def test_an_override_counts_until_its_end(until: int) -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", TEN))
        await bench.app.client.store()
        changes = LimitChanges(amounts={"requests per minute": 2.0})
        await bench.app.store.override_pool("api", changes, by="ann", until=bench.clock.wall() + until)
        plan = await bench.app.plan(task, count=len(OURS))
        await bench.send(task, OURS)
        bench.work()
        close_to(plan, await bench.done(OURS))

    virtually(scenario)


def test_the_reserved_share_is_not_used() -> None:
    async def scenario(bench: Bench) -> None:
        pool = bench.app.pool("api", TEN, reserved_share=0.4, urgent=1)
        task = bench.task(pool=pool)
        await bench.app.client.store()
        urgent = await bench.app.plan(task.using(priority=1), count=len(OURS))
        plan = await bench.app.plan(task, count=len(OURS))
        assert urgent.seconds is not None
        assert plan.seconds is not None
        assert urgent.seconds < plan.seconds * 0.7
        await bench.send(task, OURS)
        bench.work()
        close_to(plan, await bench.done(OURS))

    virtually(scenario)


@pytest.mark.parametrize(("slots", "concurrency"), [(3, None), (50, 2), (50, None)])
def test_workers_and_queues_are_limits_too(slots: int, concurrency: int | None) -> None:
    """The number of workers and the duration of a job are known from the history."""

    async def scenario(bench: Bench) -> None:
        bench.app.queue("default", concurrency=concurrency)
        task = bench.task(pool=bench.app.pool("api", Limit.requests(100, per="minute")), takes=6.0)
        await bench.send(task, range(4))
        bench.work()
        await bench.done(range(4))
        await asyncio.sleep(100)
        plan = await bench.app.plan(task, count=150)
        assert plan.takes == pytest.approx(6.0)
        assert plan.bottleneck is not None
        assert (plan.bottleneck.pool is None) == (slots == 3 or concurrency == 2)
        await bench.send(task, range(1000, 1150))
        close_to(plan, await bench.done(range(1000, 1150)))

    virtually(scenario, slots=slots)


def test_a_plan_that_cannot_be_made_says_why() -> None:
    async def scenario(bench: Bench) -> None:
        task = bench.task(pool=bench.app.pool("api", Limit.concurrent(3)))
        await bench.app.client.store()
        with pytest.raises(ConfigurationError, match="takes: pool 'api' allows so many calls at once"):
            await bench.app.plan(task, count=10)
        with pytest.raises(ConfigurationError, match="count: must be a whole number"):
            await bench.app.plan(task, count=0)
        with pytest.raises(ConfigurationError, match="count: a list of jobs has its own number"):
            await bench.app.plan([task.job(1)], count=2)
        with pytest.raises(ConfigurationError, match="takes: must be a number of seconds"):
            await bench.app.plan(task, count=1, takes=-1.0)
        tokens = bench.app.pool("tokens", TEN)
        costly = bench.task("costly", pool=tokens, cost=lambda number: {"requests": number})
        with pytest.raises(ConfigurationError, match="its cost is computed from the arguments"):
            await bench.app.plan(costly, count=10)
        plan = await bench.app.plan(costly.job(2), count=10)
        assert (plan.calls, plan.units) == (10, {"requests": 20.0})

    virtually(scenario)


def test_jobs_without_limits_start_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        plan = await bench.app.plan(bench.task(), count=10_000)
        assert (plan.seconds, plan.bottleneck, plan.limits) == (0.0, None, ())

    virtually(scenario)
