"""Tasks with paid calls for the chaos tests.

Handlers use the lifespan's state, a paid step and the openai package, once with a client of the lifespan
and once with a client of the module."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from openai import AsyncOpenAI

from tests.chaos.tasks import EVENTS, URL
from tidemill import Context, Limit, Retention, Retry, Tidemill
from tidemill.telemetry.events import StepOutcomeUnknown

PROVIDER = os.environ.get("CHAOS_PROVIDER", "http://127.0.0.1:9/v1")
WORKER = "CHAOS_WORKER"
"""The process id of the worker; a handler in a child process has another."""
TASKS = ("by-state", "by-module")

app = Tidemill(URL)
app.queue("default", crash_limit=50, keep_done=Retention(), keep_failed=Retention())
pool = app.pool("openai", Limit.requests(100_000, per="minute"), jitter=4.0)
client = AsyncOpenAI(base_url=PROVIDER, api_key="any", max_retries=0)


@app.lifespan
async def shared() -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=PROVIDER, api_key="any", max_retries=0) as opened:
        yield opened


@app.on(StepOutcomeUnknown)
def unknown(event: StepOutcomeUnknown) -> None:
    EVENTS.write("unknown", event.job)


async def call(ctx: Context, by: AsyncOpenAI) -> str:
    async def ask() -> str:
        answer = await by.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "why?"}],
            extra_headers={"x-job": ctx.job_id},
        )
        ctx.used(answer)
        return answer.object

    if os.environ.get(WORKER, "") != str(os.getpid()):
        EVENTS.write("apart", ctx.job_id)
    EVENTS.write("started", ctx.job_id)
    answer = await ctx.step("ask", ask, paid=True)
    EVENTS.write("committed", ctx.job_id)
    return answer


@app.task(name="by-state", pool=pool, retry=Retry(attempts=5, first=0.1))
async def by_state(ctx: Context, n: int) -> str:
    assert n >= 0
    return await call(ctx, ctx.state)


@app.task(name="by-module", pool=pool, retry=Retry(attempts=5, first=0.1))
async def by_module(ctx: Context, n: int) -> str:
    assert n >= 0
    return await call(ctx, client)
