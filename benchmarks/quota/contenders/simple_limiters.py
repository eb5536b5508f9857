"""Three simple rate limiters as they are usually written, over one list of jobs in one process."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from benchmarks.quota.contenders import SLOTS
from benchmarks.quota.process_settings import ProcessSettings
from benchmarks.quota.provider_client import STATUS_REFUSED, build_request, compute_backoff, create_client


class Limiter(Protocol):
    def wait(self, now: float) -> float:
        """Returns the seconds until a call may be made; 0 also takes the capacity."""
        ...


class NoLimiter:
    def wait(self, now: float) -> float:  # noqa: ARG002 - independent of time
        return 0.0


class FixedWindowLimiter:
    def __init__(self, amount: int, window: float) -> None:
        self._amount, self._window = amount, window
        self._began, self._used = float("-inf"), 0

    def wait(self, now: float) -> float:
        if now >= self._began + self._window:
            self._began, self._used = now, 0
        if self._used == self._amount:
            return self._began + self._window - now
        self._used += 1
        return 0.0


class TokenBucketLimiter:
    """A token bucket of the limit's size, full at the start."""

    def __init__(self, amount: int, window: float) -> None:
        self._amount, self._rate = amount, amount / window
        self._level, self._at = float(amount), float("-inf")

    def wait(self, now: float) -> float:
        self._level = min(self._amount, self._level + (now - self._at) * self._rate)
        self._at = now
        if self._level < 1:
            return (1 - self._level) / self._rate
        self._level -= 1
        return 0.0


def create_limiter(setting: ProcessSettings) -> Limiter:
    amount, window = setting.account.jobs_per_window, setting.real(setting.account.window)
    match setting.rule:
        case "window":
            return FixedWindowLimiter(amount, window)
        case "bucket":
            return TokenBucketLimiter(amount, window)
        case _:
            return NoLimiter()


async def work(setting: ProcessSettings) -> None:
    loop, calls, kept = asyncio.get_running_loop(), create_client(setting), create_limiter(setting)
    jobs = deque(range(setting.jobs))

    async def allowed() -> None:
        while (wait := kept.wait(loop.time())) > 0:  # noqa: ASYNC110 - the limiter returns the wait
            await asyncio.sleep(wait)

    async def answered(job: int) -> None:
        refusals = 0
        while True:
            await allowed()
            response = await calls.post(**build_request(setting, job))
            if response.status_code != STATUS_REFUSED:
                response.raise_for_status()
                return
            await asyncio.sleep(compute_backoff(setting, refusals))
            refusals += 1

    async def slot() -> None:
        while jobs:
            await answered(jobs.popleft())

    print("ready", flush=True)
    await asyncio.gather(*(slot() for _ in range(setting.account.at_once or SLOTS)))


if __name__ == "__main__":
    asyncio.run(work(ProcessSettings.here()))
