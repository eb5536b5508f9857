"""The application of worker processes that call a provider with sometimes slow connections.

The environment configures it: the store, the provider's address, and whether the pool watches the
client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from tidemill import Context, Limit, Retention, Retry, Tidemill, logs

AMOUNT, WINDOW = 20, 5.0
URL = os.environ.get("SLOW_URL", "")

app = Tidemill(os.environ.get("SLOW_STORE", "memory://"))
app.queue("default", keep_done=Retention(), keep_failed=Retention())
pool = app.pool("api", Limit.requests(AMOUNT, per=WINDOW))


def client() -> httpx2.AsyncClient:
    """Returns a client without keep-alive: each call opens a connection, and every tenth is slow."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    made = httpx2.AsyncClient(base_url=URL, verify=False, timeout=30, limits=limits)
    return pool.watch(made) if os.environ.get("SLOW_WATCHES", "1") == "1" else made


@app.lifespan
@asynccontextmanager
async def opened() -> AsyncIterator[httpx2.AsyncClient]:
    """Creates the client before the first call: loading certificates takes longer than the jitter."""
    async with client() as made:
        await made.get("/")
        yield made


@app.task(name="ask", pool=pool, retry=Retry(attempts=50, first=0.1, cap=0.2))
async def ask(ctx: Context, number: int) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    response = await ctx.state.post("/v1/chat/completions", json=body, headers={"x-job": str(number)})
    response.raise_for_status()


async def main() -> None:
    await app.work(concurrency=20, poll=0.5)


if __name__ == "__main__":
    logs.configure(level="warning")
    asyncio.run(main())
