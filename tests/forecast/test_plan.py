"""`plan` is within a tenth of when the jobs are really done."""

from __future__ import annotations

import asyncio
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.forecast.bench import Bench, close_to, virtually
from tidemill import Day, Limit, Tidemill
from tidemill.inspect.forecast_inputs import FindPool, StoreSnapshot

LA = "America/Los_Angeles"
MINUTE = 60.0

LIMITS = {
    "rolling": (Limit.requests(10, per="minute"),),
    "bucket": (Limit.requests(30, per="minute", shape="bucket"),),
    "paced": (Limit.requests(20, per="minute", shape="paced"),),
    "two windows": (Limit.requests(3, per="second"), Limit.requests(100, per="minute")),
    "two shapes": (Limit.requests(20, per=10.0, shape="bucket"), Limit.requests(60, per="minute")),
    "calls of 3 in 10": (Limit.tokens(10, per="minute"),),
    "at once": (Limit.concurrent(4),),
    "at once and a window": (Limit.concurrent(4), Limit.requests(20, per="minute")),
    "hours": (Limit.requests(5, per="second"), Limit.requests(500, per="hour")),
}
COSTS = {"calls of 3 in 10": {"tokens": 3}}
"""The cost of the tasks; tasks that are not listed cost one request."""


@pytest.mark.parametrize("count", [1, 7, 45, 230])
@pytest.mark.parametrize("name", LIMITS)
def test_each_shape_alone_and_together(name: str, count: int) -> None:
    async def scenario(bench: Bench) -> None:
        pool = bench.app.pool("api", *LIMITS[name])
        task = bench.task(pool=pool, cost=COSTS.get(name), takes=2.0)
        await bench.app.client.store()
        plan = await bench.app.plan(task, count=count, takes=2.0)
        await bench.send(task, range(count))
        bench.work(2)
        close_to(plan, await bench.done(range(count)))

    virtually(scenario)


@pytest.mark.parametrize("before", [3, 9, 10, 25])
@pytest.mark.parametrize("name", ["rolling", "bucket", "paced", "two windows", "calls of 3 in 10", "at once"])
def test_used_units_and_waiting_jobs_count(name: str, before: int) -> None:
    """Some jobs run, some are done, some wait: used units count, and waiting jobs come first."""

    async def scenario(bench: Bench) -> None:
        pool = bench.app.pool("api", *LIMITS[name])
        task = bench.task(pool=pool, cost=COSTS.get(name), takes=5.0)
        await bench.send(task, range(before))
        bench.work()
        await asyncio.sleep(8.0)
        plan = await bench.app.plan(task, count=30, takes=5.0)
        await bench.send(task, range(1000, 1030))
        close_to(plan, await bench.done(range(1000, 1030)))

    virtually(scenario)


def test_days_across_the_change_of_clocks() -> None:
    """Starts on the day when the clocks go back in Los Angeles, which has 25 hours. No worker runs while
    the day's quota is used up, which changes nothing and is faster to simulate."""
    start = datetime(2026, 11, 1, 0, 10, tzinfo=ZoneInfo(LA)).timestamp()
    turn = datetime(2026, 11, 2, tzinfo=ZoneInfo(LA)).timestamp()

    async def scenario(bench: Bench) -> None:
        limits = (
            Limit.requests(3, per="second"),
            Limit.requests(50, per="minute"),
            Limit.requests(300, per=Day(LA)),
        )
        task = bench.task(pool=bench.app.pool("api", *limits))
        await bench.app.client.store()
        plan = await bench.app.plan(task, count=500)
        assert str(plan).startswith("500 jobs of call; done Mon 2 Nov 00:0"), str(plan)
        assert "PST, in 1 d; " in str(plan), str(plan)
        assert str(plan).endswith("; bottleneck: 300 requests per day of api."), str(plan)
        await bench.send(task, range(500))
        bench.work()
        await bench.done(range(300))
        await bench.stop()
        await asyncio.sleep(turn - bench.clock.wall() - MINUTE)
        bench.work()
        done = await bench.done(range(500))
        assert turn < done < turn + 5 * MINUTE
        assert plan.done_at is not None
        assert abs(plan.done_at - done) < 30

    virtually(scenario, start=start)


def test_months_are_simulated_period_by_period() -> None:
    """Two years of a quota are planned in an instant, for any number of jobs."""

    async def scenario(bench: Bench) -> None:
        pool = bench.app.pool("api", Limit.requests(10, per="minute"), Limit.requests(250, per=Day(LA)))
        task = bench.task(pool=pool)
        await bench.app.client.store()
        days = {}
        for count in (250, 2_500, 180_000, 1_000_000_000):
            plan = await bench.app.plan(task, count=count)
            assert plan.seconds is not None
            days[count] = plan.seconds / 86_400
        assert days[250] < 1
        assert days[2_500] == pytest.approx(9, abs=1)
        assert days[180_000] == pytest.approx(719, rel=0.01)
        assert days[1_000_000_000] == pytest.approx(4_000_000, rel=0.01)

    virtually(scenario)


async def test_the_cost_of_a_plan_is_linear_in_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    known = StoreSnapshot.known

    def counting(situation: StoreSnapshot) -> FindPool:
        knows = known(situation)

        def counted(place: tuple[str, str | None]) -> object:
            nonlocal calls
            calls += 1
            return knows(place)

        return counted  # type: ignore[return-value]

    monkeypatch.setattr(StoreSnapshot, "known", counting)
    app = Tidemill("memory://")
    site = app.pool("site", Limit.requests(1, per="second"), keyed=True)

    @app.task(queue="feeds", pool=site.by(lambda feed: feed))
    async def refresh(feed: str) -> None: ...

    costs = []
    async with app:
        for keys in (50, 100):
            calls = 0
            plan = await app.plan([refresh.job(f"{number}.example") for number in range(keys)])
            assert len(plan.limits) == keys
            costs.append(calls)
    assert costs[1] < 2.5 * costs[0]
