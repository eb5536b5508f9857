"""The application of the worker processes that call a provider over HTTP.

The environment configures it: the folder of the store, the provider's address, the account, and how
calls are paid."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx2
from msgspec.structs import replace

from tests.quotas.backlog_drain import build_request
from tests.quotas.drain_setups import DrainSetup, setup_for
from tidemill import Context, Limit, Retention, Retry, Tidemill

SCALE = 30.0
"""A provider's minute takes 2 s."""
FOLDER = Path(os.environ.get("QUOTA_FOLDER", "."))
URL = os.environ.get("QUOTA_URL", "")
PAYMENT_MODE = os.environ.get("QUOTA_PAYMENT", "plain")
"""The payment mode. plain: one call. retry, park: a paid step that is retried or parked if its outcome is
unknown."""

AFTERWARDS = 0.3
"""Seconds that a handler works on an answer: about as long as a call, so that kills hit both equally often.
"""


def setup() -> DrainSetup:
    return setup_for(os.environ.get("QUOTA_SETUP", "openai"), int(os.environ.get("QUOTA_SEED", "0")))


def scaled(limit: Limit) -> Limit:
    return replace(limit, per=limit.per / SCALE) if isinstance(limit.per, float) else limit


SETUP = setup()
app = Tidemill(os.environ.get("QUOTA_STORE", f"sqlite:///{FOLDER / 'jobs.db'}"))
app.queue("default", crash_limit=50, keep_done=Retention(), keep_failed=Retention())
pool = app.pool("api", *map(scaled, SETUP.limits))


@app.task(name="ask", pool=pool, cost=SETUP.cost, retry=Retry(attempts=50, first=0.1, cap=0.2))
async def ask(ctx: Context, number: int) -> None:
    if PAYMENT_MODE == "plain":
        ctx.used(await call(number))
        return
    await ctx.step(
        "call", paid_call, number, paid=True, on_unknown="park" if PAYMENT_MODE == "park" else "retry"
    )
    await asyncio.sleep(AFTERWARDS)


CLIENTS: list[httpx2.AsyncClient] = []
"""The client of the worker. A suspect runs in a child process without a lifespan."""


@app.lifespan
@asynccontextmanager
async def opened() -> AsyncIterator[None]:
    """Connects before the first call: ten cold calls at once take longer than the jitter."""
    async with _client() as client:
        await client.get(URL)
        CLIENTS.append(client)
        yield


async def call(number: int) -> Any:
    sent = build_request(SETUP, number)
    async with nullcontext(CLIENTS[0]) if CLIENTS else _client() as client:
        response = await client.post(URL + sent.path, json=sent.body, headers=sent.headers)
    response.raise_for_status()
    return response


def _client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=30, verify=False)


async def paid_call(number: int) -> int:
    return int((await call(number)).status_code)
