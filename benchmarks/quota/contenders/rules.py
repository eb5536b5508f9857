"""Three rules as they are usually written, over one list of jobs in one process."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from benchmarks.quota.calling import REFUSED, backoff, client, request
from benchmarks.quota.contenders import SLOTS
from benchmarks.quota.setting import Setting


class Rule(Protocol):
    def wait(self, now: float) -> float:
        """Seconds until a call may be made; 0 takes it."""
        ...


class NoRule:
    def wait(self, now: float) -> float:  # noqa: ARG002 - it never looks
        return 0.0


class FixedWindow:
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


class Bucket:
    """As large as the limit, full at first."""

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


def rule(setting: Setting) -> Rule:
    amount, window = setting.account.jobs_per_window, setting.real(setting.account.window)
    match setting.rule:
        case "window":
            return FixedWindow(amount, window)
        case "bucket":
            return Bucket(amount, window)
        case _:
            return NoRule()


async def work(setting: Setting) -> None:
    loop, calls, kept = asyncio.get_running_loop(), client(setting), rule(setting)
    jobs = deque(range(setting.jobs))

    async def allowed() -> None:
        while (wait := kept.wait(loop.time())) > 0:  # noqa: ASYNC110 - the rule says how long
            await asyncio.sleep(wait)

    async def answered(job: int) -> None:
        refusals = 0
        while True:
            await allowed()
            response = await calls.post(**request(setting, job))
            if response.status_code != REFUSED:
                response.raise_for_status()
                return
            await asyncio.sleep(backoff(setting, refusals))
            refusals += 1

    async def slot() -> None:
        while jobs:
            await answered(jobs.popleft())

    print("ready", flush=True)
    await asyncio.gather(*(slot() for _ in range(setting.account.at_once or SLOTS)))


if __name__ == "__main__":
    asyncio.run(work(Setting.here()))
