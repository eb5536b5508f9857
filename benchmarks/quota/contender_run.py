"""Runs one contender against new providers, from full buckets to the last answer or the time limit.

All accounts run at the same time, each with separate workers. Workers mostly wait, so the table takes a
quarter of the time. Jobs are enqueued after the workers of all accounts are ready. Workers stop after
all accounts have finished."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.quota.accounts import ACCOUNTS
from benchmarks.quota.contenders import Contender
from benchmarks.quota.process_settings import ProcessSettings
from benchmarks.quota.redis_server import redis
from benchmarks.quota.results import QuotaResult, compute_result, drained
from tidemill.clock import SystemClock
from tidemill.testing.simulator import DIALECTS, RequestLog, SimulatedProvider, SimulatorServer

TIME_LIMIT_FACTOR = 3.0
"""A contender that takes longer than this multiple of T_opt counts as not drained."""
START_TIMEOUT_SECONDS = 120.0
FINAL_DELAY_SECONDS = 1.0
"""Real seconds to wait at the end, so that a superfluous call is still recorded."""


async def run_contender(
    contender: Contender, dialects: Sequence[str], *, jobs: int, scale: float, seed: int, folder: Path
) -> dict[str, tuple[QuotaResult, RequestLog]]:
    together = asyncio.Barrier(len(dialects))

    async def one(dialect: str) -> tuple[QuotaResult, RequestLog]:
        account, place = ACCOUNTS[dialect], folder / dialect
        place.mkdir()
        spoken, clock = DIALECTS[dialect](), SystemClock()
        provider = SimulatedProvider(
            spoken, account.quotas, account.options, clock=clock, seed=seed, scale=scale
        )
        best = account.best(jobs)
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(SimulatorServer(provider))
            port = await stack.enter_async_context(redis(place)) if contender.needs_redis else 0
            setting = ProcessSettings(
                dialect=dialect,
                url=server.url,
                jobs=jobs,
                scale=scale,
                folder=str(place),
                redis=port,
                rule=contender.rule,
                workers=contender.workers,
            )
            await stack.enter_async_context(_working(contender, setting))
            await together.wait()
            if contender.enqueue is not None:
                await _enqueue(contender.enqueue, setting)
            await _watch(provider, jobs, TIME_LIMIT_FACTOR * best / scale)
            await together.wait()
        if not provider.request_log.bills:
            raise RuntimeError(f"{contender.name} got no answer:\n{_last_words(place)}")
        return compute_result(provider.request_log, jobs, best), provider.request_log

    async with asyncio.TaskGroup() as group:
        tasks = {dialect: group.create_task(one(dialect)) for dialect in dialects}
    return {dialect: task.result() for dialect, task in tasks.items()}


async def _watch(provider: SimulatedProvider, jobs: int, seconds: float) -> None:
    give_up = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < give_up:
        if drained(provider.request_log) == jobs:
            break
        await asyncio.sleep(0.25)
    await asyncio.sleep(FINAL_DELAY_SECONDS)


async def _enqueue(module: str, setting: ProcessSettings) -> None:
    command = [sys.executable, "-m", f"benchmarks.quota.contenders.{module}", "enqueue"]
    process = await asyncio.create_subprocess_exec(*command, env=setting.environment())
    if await process.wait():
        raise RuntimeError(f"{' '.join(command)} failed")


@asynccontextmanager
async def _working(contender: Contender, setting: ProcessSettings) -> AsyncIterator[None]:
    """Starts the workers and waits until they are ready; stops them by their process ids at the end."""
    logs = [Path(setting.folder) / f"worker-{number}.log" for number in range(contender.processes)]
    processes = []
    try:
        for log in logs:
            with log.open("wb") as output:
                processes.append(
                    await asyncio.create_subprocess_exec(
                        *(word.replace("%%i", log.stem) for word in contender.work(setting)),
                        env=setting.environment() | {"PYTHONUNBUFFERED": "1"},
                        stdout=output,
                        stderr=output,
                    )
                )
        await asyncio.gather(*(_says(log, contender) for log in logs))
        yield
    finally:
        await asyncio.gather(*(_stop(process) for process in processes))


async def _says(log: Path, contender: Contender) -> None:
    try:
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            while _read(log).count(contender.ready) < contender.times:  # noqa: ASYNC110 - a file sends no notification
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise RuntimeError(f"{contender.name} did not start:\n{_read(log)[-2000:]}") from None


def _last_words(folder: Path) -> str:
    return "\n".join(_read(log)[-2000:] for log in sorted(folder.glob("worker-*.log")))


def _read(log: Path) -> str:
    return log.read_text(errors="replace")


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
    await process.wait()
