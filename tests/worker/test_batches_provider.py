"""From the application to the provider: the provider, or a list of the test, counts the calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tidemill import Context, FailedItem, Limit, Retry, Tidemill
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.states import FINAL, State
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.simulator import CallableProvider, OpenAIDialect, Quota, SimulatorRequest
from tidemill.testing.virtual_loop import run_virtual

TEXTS = 100
BAD = 61


async def _jobs(app: Tidemill) -> tuple[Job, ...]:
    return (await app.store.find(Filter(), limit=1000)).jobs


async def _until_ended(app: Tidemill, *workers: Any) -> tuple[Job, ...]:
    """Polling costs nothing in virtual time."""
    runs = [asyncio.create_task(worker.run()) for worker in workers]
    while not all(job.state in FINAL for job in await _jobs(app)):  # noqa: ASYNC110 - above
        await asyncio.sleep(1)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*runs)
    return await _jobs(app)


def test_i14_one_poisoned_text_of_a_hundred_costs_sixteen_calls_and_no_refusal() -> None:
    """With a quota of 6 requests per minute: the parts wait like any other call."""

    async def scenario() -> tuple[CallableProvider, tuple[Job, ...]]:
        clock, entropy = VirtualClock(), SeededEntropy(3)
        provider = CallableProvider(OpenAIDialect(), (Quota.rolling("requests", 6),), clock=clock, seed=5)
        app = Tidemill(store=MemoryStore(clock=clock, entropy=entropy), clock=clock, entropy=entropy)
        pool = app.pool("api", Limit.requests(6, per="minute"))

        @app.batch_task(pool=pool, max_items=TEXTS, linger=1, retry=Retry(attempts=1))
        async def embed(ctx: Context, texts: list[int]) -> list[int | FailedItem]:
            body = {"model": "m", "input": [str(text) for text in texts]}
            answer = await provider.call(SimulatorRequest("/v1/embeddings", body, {"x-job": ctx.job_id}))
            assert answer.status == 200
            ctx.used((answer.status, answer.headers, answer.body))
            if BAD in texts:
                raise ValueError("one of the vectors is broken")
            return [-text for text in texts]

        async with app:
            for number in range(TEXTS):
                await embed.enqueue(number)
            workers = [app.worker(heartbeat_thread=False, isolation=False) for _ in range(2)]
            return provider, await _until_ended(app, *workers)

    provider, jobs = run_virtual(scenario())
    assert len(provider.request_log.arrivals) <= 16
    assert not provider.request_log.refused
    assert sum(job.state is State.DONE for job in jobs) == TEXTS - 1
    [failed] = [job for job in jobs if job.state is State.FAILED]
    assert failed.payload == b'{"item":61}'
    assert failed.error is not None
    assert failed.error.message == "one of the vectors is broken"
    assert {job.attempts for job in jobs} == {1}


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "redis", "postgres"])
async def test_one_poisoned_item_on_every_store(
    scheme: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    places = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}
    app = Tidemill(places.get(scheme) or request.getfixturevalue(f"{scheme}_url"))
    pool = app.pool("api", Limit.tokens(1_000_000, per="minute"))
    calls: list[list[int]] = []

    @app.batch_task(
        pool=pool,
        max_items=TEXTS,
        linger=0.05,
        cost={"tokens": 5},
        item_cost=lambda number: {"tokens": number},
        retry=Retry(attempts=1),
    )
    async def embed(ctx: Context, numbers: list[int]) -> list[int | FailedItem]:
        calls.append(numbers)
        ctx.used(tokens=sum(numbers))
        if BAD in numbers:
            raise ValueError(f"cannot read {BAD}")
        return [FailedItem("odd", retry=False) if number == 3 else -number for number in numbers]

    async with app:
        handles = await app.enqueue_many(embed.job(number) for number in range(TEXTS))
        await app.worker(until_idle=True).run()
        assert len(calls) <= 16
        for number, handle in enumerate(handles):
            job = await handle.status()
            assert job.attempts == 1
            if number in {BAD, 3}:
                assert job.state is State.FAILED
            else:
                assert await handle.result(timeout=1) == -number
        [view] = await app.store.pools()
        assert view.limits[0].used == sum(sum(call) for call in calls), "every call is booked once"
