"""BullMQ for Python: a worker process, or with `enqueue` the process that adds the jobs."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from bullmq import Queue, Worker

from benchmarks.quota.contenders import SLOTS
from benchmarks.quota.process_settings import ProcessSettings
from benchmarks.quota.provider_client import STATUS_REFUSED, build_request, create_client, read_wait_seconds

ATTEMPTS = 1000


async def work(setting: ProcessSettings) -> None:
    calls, queue = create_client(setting), _queue(setting)

    async def ask(job: Any, _: str) -> None:
        response = await calls.post(**build_request(setting, job.data["job"]))
        if response.status_code == STATUS_REFUSED:
            await queue.rateLimit(max(1, round(read_wait_seconds(setting, response) * 1000)))
        response.raise_for_status()

    options = {
        "connection": _connection(setting),
        "concurrency": SLOTS // setting.workers,
        # In the Python worker only this delay ends the wait for a limit: one second instead of the default
        # five.
        "drainDelay": setting.real(1.0),
    }
    worker = Worker("quota", ask, options)
    worker.on("error", lambda *_: None)
    # After it knows the Redis version, it can wait for fractions of a second, which the scaled delays need.
    await worker.blockingRedisConnection.getRedisVersion()
    print("ready", flush=True)
    await asyncio.Event().wait()


async def enqueue(setting: ProcessSettings) -> None:
    queue, account = _queue(setting), setting.account
    await queue.setGlobalRateLimit(account.jobs_per_window, round(setting.real(account.window) * 1000))
    if account.at_once is not None:
        await queue.setGlobalConcurrency(account.at_once)
    options = {
        "attempts": ATTEMPTS,
        "backoff": {"type": "exponential", "delay": round(setting.real(1.0) * 1000)},
    }
    await queue.addBulk(
        [{"name": "ask", "data": {"job": job}, "opts": options} for job in range(setting.jobs)]
    )
    await queue.close()


def _queue(setting: ProcessSettings) -> Any:
    return Queue("quota", {"connection": _connection(setting)})


def _connection(setting: ProcessSettings) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": setting.redis}


if __name__ == "__main__":
    asyncio.run((enqueue if sys.argv[1:] == ["enqueue"] else work)(ProcessSettings.here()))
