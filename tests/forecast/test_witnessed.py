"""Plans against a provider with books of its own, on both stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.forecast.bench import close_to
from tests.quotas.sqlite_virtually import VirtualSqliteStore
from tidemill import Context, Limit, Tidemill
from tidemill.contract.store import Store
from tidemill.stores.memory import MemoryStore
from tidemill.testing.manual import SeededEntropy
from tidemill.testing.providers import CalledProvider, OpenAI, Options, Quota, Request
from tidemill.testing.virtual import VirtualClock, run_virtual

JOBS = 120
QUOTAS = (Quota.rolling("requests", 20), Quota.rolling("tokens", 8_000))


def store_of(kind: str, folder: Path, clock: VirtualClock, entropy: SeededEntropy) -> Store:
    if kind == "memory":
        return MemoryStore(clock=clock, entropy=entropy)
    return VirtualSqliteStore(folder / "jobs.db", clock=clock, entropy=entropy)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_last_bill_is_written_when_the_plan_said(kind: str, tmp_path: Path) -> None:
    """Tokens of an answer are counted with the answer, which is what `charge="completed"` is for."""

    async def scenario() -> None:
        clock, entropy = VirtualClock(), SeededEntropy(3)
        options = Options(jitter=0.4, latency=(1.0, 3.0))
        provider = CalledProvider(OpenAI(), QUOTAS, options, clock=clock, seed=5)
        store = store_of(kind, tmp_path, clock, entropy)
        app = Tidemill(store=store, clock=clock, entropy=entropy)
        pool = app.pool(
            "api", Limit.requests(20, per="minute"), Limit.tokens(8_000, per="minute", charge="completed")
        )
        ended = asyncio.Event()
        done: list[float] = []

        @app.task(name="ask", pool=pool, cost={"tokens": 500})
        async def ask(ctx: Context, number: int) -> None:
            said = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
            headers = {"x-job": str(number), "x-input-tokens": "400", "x-output-tokens": "100"}
            answer = await provider.call(Request("/v1/chat/completions", said, headers))
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
        assert provider.ledger.refused == []
        assert len(provider.ledger.bills) == JOBS
        close_to(plan, max(done))

    run_virtual(scenario())
