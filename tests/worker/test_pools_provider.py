"""From the application to the provider: a simulated provider counts the calls that really arrive."""

from __future__ import annotations

import asyncio

from tidemill import Context, Limit, Tidemill
from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.simulator import (
    CallableProvider,
    ExternalTraffic,
    OpenAIDialect,
    Quota,
    SimulatorOptions,
    SimulatorReply,
    SimulatorRequest,
)
from tidemill.testing.virtual_loop import run_virtual

QUOTAS = (Quota.rolling("requests", 10), Quota.rolling("tokens", 3000))
JOBS = 40


class NotAnswered(Exception):
    """An error as client libraries raise it."""

    def __init__(self, answer: SimulatorReply) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.status_code, self.headers, self.body = answer.status, answer.headers, answer.body


def _drained(options: SimulatorOptions) -> tuple[CallableProvider, list[int]]:
    """Runs forty jobs on two workers; returns the provider and the charged attempts of each job."""

    async def scenario() -> tuple[CallableProvider, list[int]]:
        clock, entropy = VirtualClock(), SeededEntropy(3)
        provider = CallableProvider(OpenAIDialect(), QUOTAS, options, clock=clock, seed=5)
        app = Tidemill(store=MemoryStore(clock=clock, entropy=entropy), clock=clock, entropy=entropy)
        pool = app.pool("api", Limit.requests(10, per="minute"), Limit.tokens(3000, per="minute"))

        @app.task(pool=pool, cost={"tokens": 500})
        async def ask(ctx: Context, number: int) -> None:
            body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
            headers = {"x-job": str(number), "x-input-tokens": "200", "x-output-tokens": "50"}
            answer = await provider.call(SimulatorRequest("/v1/chat/completions", body, headers))
            if answer.status >= 400:
                raise NotAnswered(answer)
            ctx.used((answer.status, answer.headers, answer.body))

        async with app:
            await app.enqueue_many(ask.job(number) for number in range(JOBS))
            workers = [app.worker(heartbeat_thread=False, isolation=False) for _ in range(2)]
            runs = [asyncio.create_task(worker.run()) for worker in workers]
            # Polling costs nothing in virtual time.
            while (await app.store.counts())["default"].get(State.DONE, 0) < JOBS:  # noqa: ASYNC110 - above
                await asyncio.sleep(1)
            for worker in workers:
                worker.stop()
            await asyncio.gather(*runs)
            page = await app.store.find(Filter(), limit=JOBS)
            return provider, [job.attempts for job in page.jobs]

    return run_virtual(scenario())


def test_i14_alone_on_the_account_nothing_is_ever_refused() -> None:
    provider, attempts = _drained(SimulatorOptions(jitter=0.4, latency=(0.5, 5.0)))
    assert provider.request_log.refused == []
    assert provider.request_log.max_units_in_window("requests", 60) == 10
    assert len(provider.request_log.bills) == JOBS
    assert attempts == [1] * JOBS
    assert max(bill.at for bill in provider.request_log.bills) < 4 * 60 + 30, "and the quota was kept full"


def test_i16_with_external_usage_refusals_cost_no_attempt() -> None:
    foreign = ExternalTraffic(per_second=1.0, end=300, input_tokens=100)
    provider, attempts = _drained(SimulatorOptions(jitter=0.4, latency=(0.5, 5.0), external=(foreign,)))
    assert provider.request_log.refused, "or nothing was tried here"
    assert attempts == [1] * JOBS
    assert provider.request_log.duplicate_payments() == {}
