"""A worker process on an account with a smaller quota than declared: `python -m
tests.quotas.exhausted_quota_worker`. The environment names the store and the provider."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import httpx2

from tidemill import Context, Limit, Tidemill, logs

FOLDER = Path(os.environ.get("QUOTA_FOLDER", "."))
URL = os.environ.get("QUOTA_URL", "")

app = Tidemill(f"sqlite:///{FOLDER / 'jobs.db'}")


@app.task(name="ask", pool=app.pool("api", Limit.requests(60, per=2.0)))
async def ask(ctx: Context, number: int) -> None:
    body = {"model": "glm-4.6", "messages": [{"role": "user", "content": "hello"}]}
    async with httpx2.AsyncClient(timeout=30, verify=False) as client:
        path = "/api/paas/v4/chat/completions"
        response = await client.post(URL + path, json=body, headers={"x-job": str(number)})
    response.raise_for_status()
    ctx.used(response)


if __name__ == "__main__":
    logs.configure(level="warning")
    asyncio.run(app.work(concurrency=5, lease=2.0, reclaim_every=0.5, poll=0.5))
