"""N7: jobs that share a call count as one call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.forecast.bench import Bench, close_to, virtually
from tidemill import FailedItem, Limit
from tidemill.inspect.causes import CauseCode


def embedding(bench: Bench, **options: Any) -> Any:
    @bench.app.batch_task(name="embed", **options)
    async def embed(numbers: list[int]) -> list[int | FailedItem]:
        for number in numbers:
            await bench.ran(number)
        return list(numbers)

    return embed


@pytest.mark.parametrize("count", [5, 100, 330])
def test_a_call_takes_many_jobs(count: int) -> None:
    async def scenario(bench: Bench) -> None:
        pool = bench.app.pool("api", Limit.requests(3, per="minute"))
        task = embedding(bench, pool=pool, max_items=20)
        await bench.app.client.store()
        plan = await bench.app.plan(task, count=count)
        assert (plan.calls, plan.units) == (-(-count // 20), {"requests": -(-count // 20)})
        await bench.send(task, range(count))
        bench.work()
        close_to(plan, await bench.done(range(count)))

    virtually(scenario)


def test_the_cost_of_items_bounds_a_call_too() -> None:
    async def scenario(bench: Bench) -> None:
        pool = bench.app.pool("api", Limit.requests(10, per="minute"), Limit.tokens(1_000, per="minute"))
        task = embedding(bench, pool=pool, max_items=50, max_units={"tokens": 500}, item_cost={"tokens": 50})
        await bench.app.client.store()
        plan = await bench.app.plan(task, count=200)
        assert (plan.calls, plan.units["tokens"]) == (20, 10_000)
        await bench.send(task, range(200))
        bench.work()
        close_to(plan, await bench.done(range(200)))

    virtually(scenario)


def test_a_job_that_waits_for_its_batch_says_so() -> None:
    async def scenario(bench: Bench) -> None:
        pool = bench.app.pool("api", Limit.requests(3, per="minute"))
        task = embedding(bench, pool=pool, max_items=20, linger=90.0)
        bench.work()
        await asyncio.sleep(1)
        job = await task.enqueue(7)
        await asyncio.sleep(2)
        it = await bench.app.explain(job.id)
        assert [cause.code for cause in it.causes] == [CauseCode.BATCH_WAIT], it.sentence
        assert "share a call with, up to 20" in it.sentence
        await bench.done(range(7, 8))
        assert it.starts_at == pytest.approx(bench.ends[7], abs=1.5)

    virtually(scenario)
