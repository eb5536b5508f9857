"""What the worker processes run against a provider over HTTP. Configured by the environment, since they are
processes of their own: the folder of the store, the provider's address, which account, how it is paid."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx2
from msgspec.structs import replace

from tests.quotas.draining import request
from tests.quotas.setups import Setup, setup_for
from tidemill import Context, Limit, Retention, Retry, Tidemill

SCALE = 30.0
"""A minute of the provider's takes 2 s."""
FOLDER = Path(os.environ.get("QUOTA_FOLDER", "."))
URL = os.environ.get("QUOTA_URL", "")
HOW = os.environ.get("QUOTA_HOW", "plain")
"""plain: one call; retry, park: a paid step that is tried again, or set aside, when nobody knows."""

AFTERWARDS = 0.3
"""Seconds. What a handler does with an answer: about as long as a call, so kills meet it as often."""


def setup() -> Setup:
    return setup_for(os.environ.get("QUOTA_SETUP", "openai"), int(os.environ.get("QUOTA_SEED", "0")))


def scaled(limit: Limit) -> Limit:
    return replace(limit, per=limit.per / SCALE) if isinstance(limit.per, float) else limit


SETUP = setup()
app = Tidemill(os.environ.get("QUOTA_STORE", f"sqlite:///{FOLDER / 'jobs.db'}"))
app.queue("default", crash_limit=50, keep_done=Retention(), keep_failed=Retention())
pool = app.pool("api", *map(scaled, SETUP.limits))


@app.task(name="ask", pool=pool, cost=SETUP.cost, retry=Retry(attempts=50, first=0.1, cap=0.2))
async def ask(ctx: Context, number: int) -> None:
    if HOW == "plain":
        ctx.used(await call(number))
        return
    await ctx.step("call", paid_call, number, paid=True, on_unknown="park" if HOW == "park" else "retry")
    await asyncio.sleep(AFTERWARDS)


CLIENTS: list[httpx2.AsyncClient] = []
"""The worker's. A suspect runs in a process of its own, where there is no lifespan."""


@app.lifespan
@asynccontextmanager
async def opened() -> AsyncIterator[None]:
    """Ready before the first call: ten cold ones at once take longer than the jitter leaves them."""
    async with _client() as client:
        await client.get(URL)
        CLIENTS.append(client)
        yield


async def call(number: int) -> Any:
    sent = request(SETUP, number)
    async with nullcontext(CLIENTS[0]) if CLIENTS else _client() as client:
        response = await client.post(URL + sent.path, json=sent.body, headers=sent.headers)
    response.raise_for_status()
    return response


def _client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=30, verify=False)


async def paid_call(number: int) -> int:
    return int((await call(number)).status_code)
