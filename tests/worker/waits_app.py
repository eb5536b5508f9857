"""An application whose handlers wait for other jobs. Its store is a file in the current folder."""

from __future__ import annotations

import asyncio
import os

from tidemill import Retry, Tidemill

app = Tidemill("sqlite:///waits.db")


@app.task(name="child")
async def child(number: int) -> list[int]:
    return [2 * number, os.getpid()]


@app.task(name="parent", timeout=60, retry=Retry(attempts=1))
async def parent(number: int) -> list[int]:
    return [*await (await child.enqueue(number)).result(), os.getpid()]


@app.task(name="waits-for", timeout=60, retry=Retry(attempts=1))
async def waits_for(job: str) -> list[int]:
    return [*await app.job(job).result(), os.getpid()]


@app.task(name="fan-out", timeout=60, retry=Retry(attempts=1))
async def fan_out() -> int:
    jobs = await app.enqueue_many(child.job(number) for number in range(10))
    results = await asyncio.gather(*(job.result() for job in jobs))
    return sum(result for result, _ in results)


@app.task(name="in-thread", timeout=60, retry=Retry(attempts=3))
def in_thread(number: int) -> list[int]:
    return child.enqueue_sync(number).result_sync()


@app.task(name="step-in-thread", timeout=60, retry=Retry(attempts=3))
async def step_in_thread(number: int) -> list[int]:
    return await asyncio.to_thread((await child.enqueue(number)).result_sync)


@app.task(name="isolated", timeout=60, retry=Retry(attempts=3), isolate=True)
async def isolated(number: int) -> list[int]:
    return await (await child.enqueue(number)).result()


@app.task(name="looks-once", timeout=60, retry=Retry(attempts=1))
def looks_once(job: str) -> list[int]:
    result: list[int] = app.job(job).result_sync(timeout=0)
    return result
