"""Plans compared with a simulated provider, on two stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.forecast.bench import close_to
from tests.quotas.virtual_sqlite import VirtualSqliteStore
from tidemill import Context, Limit, Tidemill
from tidemill.contract.store import Store
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

JOBS = 120
QUOTAS = (Quota.rolling("requests", 20), Quota.rolling("tokens", 8_000))


def store_of(kind: str, folder: Path, clock: VirtualClock, entropy: SeededEntropy) -> Store:
    if kind == "memory":
        return MemoryStore(clock=clock, entropy=entropy)
    return VirtualSqliteStore(folder / "jobs.db", clock=clock, entropy=entropy)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_last_call_is_billed_when_the_plan_said(kind: str, tmp_path: Path) -> None:
    """Generated tokens are counted with the answer, hence `charge="completed"`."""

    async def scenario() -> None:
        clock, entropy = VirtualClock(), SeededEntropy(3)
        options = SimulatorOptions(jitter=0.4, latency=(1.0, 3.0))
        provider = CallableProvider(OpenAIDialect(), QUOTAS, options, clock=clock, seed=5)
        store = store_of(kind, tmp_path, clock, entropy)
        app = Tidemill(store=store, clock=clock, entropy=entropy)
        pool = app.pool(
            "api", Limit.requests(20, per="minute"), Limit.tokens(8_000, per="minute", charge="completed")
        )
        ended = asyncio.Event()
        done: list[float] = []

        @app.task(name="ask", pool=pool, cost={"tokens": 500})
        async def ask(ctx: Context, number: int) -> None:
            body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
            headers = {"x-job": str(number), "x-input-tokens": "400", "x-output-tokens": "100"}
            answer = await provider.call(SimulatorRequest("/v1/chat/completions", body, headers))
            assert answer.status == 200
            ctx.used((answer.status, answer.headers, answer.body))
            done.append(clock.wall())
            if len(done) == JOBS:
                ended.set()

        async with app:
            plan = await app.plan(ask, count=JOBS, takes=2.0)
            assert plan.bottleneck is not None
            assert str(plan.bottleneck) == "8000 tokens per minute of api"
            assert (plan.calls, plan.units) == (JOBS, {"requests": JOBS, "tokens": 500 * JOBS})
            await app.enqueue_many(ask.job(number) for number in range(JOBS))
            worker = app.worker(heartbeat_thread=False, isolation=False)
            running = asyncio.create_task(worker.run())
            async with asyncio.timeout(3600):  # of virtual time
                await ended.wait()
            worker.stop()
            await running
        assert provider.request_log.refused == []
        assert len(provider.request_log.bills) == JOBS
        close_to(plan, max(done))

    run_virtual(scenario())
