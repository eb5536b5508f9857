"""A second metered call inside a handler, under contention: a simulated provider counts the calls that
really arrive."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Literal

import pytest

from tidemill import Context, Limit, Tidemill
from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.simulator import (
    CallableProvider,
    OpenAIDialect,
    Quota,
    SimulatorOptions,
    SimulatorRequest,
)
from tidemill.testing.virtual_loop import run_virtual

SHAPES = {"rolling": Quota.rolling, "bucket": Quota.bucket}
Shape = Literal["rolling", "bucket"]
JOBS = 20


class Watched:
    """The results of twenty jobs, each with a first part and then a metered call."""

    def __init__(self) -> None:
        self.begun: Counter[int] = Counter()
        self.paid: Counter[int] = Counter()
        self.other = 0


async def _drain(app: Tidemill) -> None:
    workers = [app.worker(heartbeat_thread=False, isolation=False) for _ in range(2)]
    runs = [asyncio.create_task(worker.run()) for worker in workers]
    # Polling costs nothing in virtual time.
    while (await app.store.counts())["default"].get(State.DONE, 0) < 2 * JOBS:  # noqa: ASYNC110 - above
        await asyncio.sleep(1)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*runs)


def _watched(
    shape: Shape, first_part: float, seed: int
) -> tuple[CallableProvider, Watched, list[int], list[float]]:
    """Returns the provider, what the handlers saw, the charges of each job, and the usage a day later."""

    async def scenario() -> tuple[CallableProvider, Watched, list[int], list[float]]:
        clock, entropy, watched = VirtualClock(), SeededEntropy(seed), Watched()
        options = SimulatorOptions(jitter=0.4, latency=(0.5, 3.0))
        quotas = (SHAPES[shape]("requests", 10), SHAPES[shape]("tokens", 3000))
        provider = CallableProvider(OpenAIDialect(), quotas, options, clock=clock, seed=seed)
        app = Tidemill(store=MemoryStore(clock=clock, entropy=entropy), clock=clock, entropy=entropy)
        limits = (
            Limit.requests(10, per="minute", shape=shape),
            Limit.tokens(3000, per="minute", shape=shape),
        )
        voyage = app.pool("voyage", *limits)

        async def ask(ctx: Context, number: int) -> None:
            body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
            headers = {"x-job": str(number), "x-input-tokens": "200", "x-output-tokens": "50"}
            answer = await provider.call(SimulatorRequest("/v1/chat/completions", body, headers))
            assert answer.status < 400, answer
            ctx.used((answer.status, answer.headers, answer.body))

        async def pay(number: int) -> int:
            watched.paid[number] += 1
            return number

        @app.task
        async def two_parts(ctx: Context, number: int) -> None:
            watched.begun[number] += 1
            await ctx.step("first", pay, number, paid=True)
            await asyncio.sleep(first_part)
            async with ctx.spend(voyage, tokens=300):
                await ask(ctx, number)

        @app.task(pool=voyage, cost={"tokens": 300})
        async def one_part(ctx: Context, number: int) -> None:
            await ask(ctx, number)

        async with app:
            await app.enqueue_many(two_parts.job(number) for number in range(JOBS))
            await app.enqueue_many(one_part.job(JOBS + number) for number in range(JOBS))
            await _drain(app)
            await asyncio.sleep(86_400)
            page = await app.store.find(Filter(), limit=2 * JOBS)
            left = [limit.used for view in await app.store.pools() for limit in view.limits]
            assert [view.reservations for view in await app.store.pools()] == [0]
            return provider, watched, [job.attempts for job in page.jobs], left

    return run_virtual(scenario())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("first_part", [0.0, 2.0, 25.0, 90.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_i14_p18_the_first_part_runs_at_most_twice_and_nothing_is_refused(
    shape: Shape, first_part: float, seed: int
) -> None:
    provider, watched, attempts, left = _watched(shape, first_part, seed)
    assert provider.request_log.refused == []
    assert len(provider.request_log.bills) == 2 * JOBS
    assert max(watched.begun.values()) == 2, "or nobody had to wait"
    assert set(watched.paid.values()) == {1}
    assert attempts == [1] * (2 * JOBS), "waiting costs no attempt"
    assert left == [0.0, 0.0], "and nothing leaks"
