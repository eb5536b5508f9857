"""Upper bounds of the speed of any queue in Python on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import redis.asyncio
import uvloop

from benchmarks.case import Case

Step = Callable[[], Awaitable[None]]

AT_ONCE = 100

SETTINGS = {
    "asyncio-loop": "uvloop: tasks that do nothing, created and awaited, 100 at a time",
    "lua-claim": "redis-py and hiredis on uvloop: a script that finds nothing to claim, one call at a time",
}


def ceiling(case: Case) -> dict[str, float]:
    return {"per_second": uvloop.run(CEILINGS[case.queue](case))}


async def _loop(case: Case) -> float:
    async def nothing() -> None:
        """A handler without a queue."""

    async def some() -> None:
        await asyncio.gather(*(asyncio.create_task(nothing()) for _ in range(AT_ONCE)))

    return AT_ONCE * await _often(some, case.size)


async def _claim(case: Case) -> float:
    async with redis.asyncio.Redis.from_url(case.place.url) as client:
        script = client.register_script("return redis.call('ZRANGE', KEYS[1], 0, ARGV[1])")

        async def claim() -> None:
            await script(keys=["ready"], args=[AT_ONCE])

        return await _often(claim, case.size)


async def _often(step: Step, seconds: float) -> float:
    """Runs `step` repeatedly for `seconds`; returns the steps per second."""
    await step()
    steps, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        await step()
        steps += 1
    return steps / spent


CEILINGS: dict[str, Callable[[Case], Coroutine[Any, Any, float]]] = {
    "asyncio-loop": _loop,
    "lua-claim": _claim,
}
