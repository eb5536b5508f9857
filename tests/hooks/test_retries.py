"""Retries of an SDK: each retry is a request that the pool sees."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import openai
import pytest

from tests.hooks.metered_app import metered
from tidemill import Context
from tidemill.telemetry.events import PoolClosed, UnreservedCall
from tidemill.testing.simulator import OpenAIDialect, Quota

HELLO: Any = [{"role": "user", "content": "Hello"}]
SAID = {"x-input-tokens": "30", "x-output-tokens": "12"}


@pytest.mark.parametrize("calls", [1, 3])
async def test_calls_beyond_the_reservation_are_booked_and_reported_once(calls: int) -> None:
    async with (
        metered(OpenAIDialect()) as world,
        world.pool.watch(openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key="any")) as client,
    ):
        booked: list[float] = []

        async def call(ctx: Context) -> None:
            for _ in range(calls):
                await client.chat.completions.create(model="gpt", messages=HELLO, extra_headers=SAID)
                [view] = await world.app.store.pools()
                booked.append(view.limits[0].used)

        await world.run(call)
    assert booked == list(range(1, calls + 1))
    assert world.used == {"requests": calls, "tokens": 42 * calls}
    assert len(world.events_of(UnreservedCall)) == (calls > 1)


async def test_a_hidden_retry_is_a_request_and_its_refusal_closes_the_pool_at_once() -> None:
    """The provider allows one call in 2 s. openai waits for the time in Retry-After and tries again. The
    pool learns of the refusal while the handler waits."""
    quotas = [Quota.rolling("requests", 1, per=2.0)]
    async with (
        metered(OpenAIDialect(), quotas=quotas) as world,
        world.pool.watch(openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key="any")) as client,
    ):
        closed = asyncio.Event()
        world.app.signals.subscribe(lambda _: closed.set(), PoolClosed)

        async def call(ctx: Context) -> bool:
            chat: Any = {"model": "gpt", "messages": HELLO, "extra_headers": SAID}
            await client.chat.completions.create(**chat)
            second = asyncio.create_task(client.chat.completions.create(**chat))
            await closed.wait()
            still_waiting = not second.done()
            await second
            return still_waiting

        job = await world.run(call)
    assert (job.state.value, job.result) == ("done", b"true"), job.error
    assert len(world.provider.request_log.refused) == 1
    assert world.used == {"requests": 3, "tokens": 84}
    assert [closed.reason for closed in world.events_of(PoolClosed)] == ["rate"]
    [event] = world.events_of(UnreservedCall)
    assert event.pool == "api"


async def test_a_final_refusal_gives_the_job_back_uncharged() -> None:
    quotas = [Quota.rolling("requests", 1, per=2.0)]
    async with (
        metered(OpenAIDialect(), quotas=quotas) as world,
        world.pool.watch(
            openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key="any", max_retries=0)
        ) as client,
    ):

        async def call(ctx: Context) -> None:
            for _ in range(2):
                await client.chat.completions.create(model="gpt", messages=HELLO, extra_headers=SAID)

        job = await world.run(call)
    assert job.state.value != "failed"
    assert world.events_of(PoolClosed)
    assert [closed.reason for closed in world.events_of(PoolClosed)] == ["rate"]


async def test_a_refused_call_counts_as_a_request_and_returns_its_tokens() -> None:
    quotas = [Quota.rolling("tokens", 20)]
    async with (
        metered(OpenAIDialect(), quotas=quotas) as world,
        world.pool.watch(httpx2.AsyncClient(base_url=world.url, headers=SAID)) as client,
    ):

        async def call(ctx: Context) -> int:
            response = await client.post("/v1/chat/completions", json={"model": "m", "messages": HELLO})
            return int(response.status_code)

        await world.run(call)
    assert world.used == {"requests": 1, "tokens": 0}
