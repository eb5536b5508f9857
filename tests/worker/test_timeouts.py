"""Timeouts: one timer for all attempts, and handlers that ignore cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.worker.bench import Bench, Virtually
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.tasks.context import Context
from tidemill.telemetry.events import SlotStuck


def test_an_attempt_ends_at_its_timeout_and_is_retried(virtually: Virtually) -> None:
    async def slow() -> None:
        await asyncio.sleep(3600)

    async def scenario(bench: Bench) -> None:
        bench.task(slow, timeout=10, retry=Retry(attempts=2, first=100))
        job = await bench.enqueue("slow")
        began = asyncio.get_running_loop().time()
        await bench.run_until_idle()
        assert 10 <= asyncio.get_running_loop().time() - began < 10.1
        record = await bench.job(job)
        assert (record.state, record.attempts) == (State.SCHEDULED, 1)
        assert record.error is not None
        assert record.error.type == "Timeout"

    virtually(scenario)


def test_a_jobs_own_timeout_wins_and_each_ends_at_its_own(virtually: Virtually) -> None:
    ended: dict[int, float] = {}

    async def slow(number: int) -> None:
        began = asyncio.get_running_loop().time()
        try:
            await asyncio.sleep(3600)
        finally:
            ended[number] = asyncio.get_running_loop().time() - began

    async def scenario(bench: Bench) -> None:
        bench.task(slow, timeout=50)
        for number, timeout in enumerate((30.0, 5.0, None, 0.5)):
            await bench.enqueue("slow", b'{"number":%d}' % number, timeout=timeout)
        await bench.run_until_idle()
        assert {number: round(took) for number, took in ended.items()} == {0: 30, 1: 5, 2: 50, 3: 0}

    virtually(scenario)


def test_a_handler_that_finishes_while_being_cancelled_has_finished(virtually: Virtually) -> None:
    async def tidy() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "partial"
        return "whole"

    async def scenario(bench: Bench) -> None:
        bench.task(tidy, timeout=1)
        job = await bench.enqueue("tidy")
        await bench.run_until_idle()
        assert (await bench.job(job)).result == b'"partial"'

    virtually(scenario)


def test_i21_an_attempt_that_ignores_cancellation_is_settled_and_keeps_its_slot(virtually: Virtually) -> None:
    release = asyncio.Event()

    async def deaf() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async def quick() -> None: ...

    async def scenario(bench: Bench) -> None:
        bench.task(deaf, timeout=10, retry=Retry(attempts=1))
        bench.task(quick)
        job = await bench.enqueue("deaf")
        worker = bench.worker(concurrency=1)
        running = bench.start(worker)
        await asyncio.sleep(14)
        assert ((await bench.job(job)).state, worker.stats.stuck) == (State.RUNNING, 0)
        await asyncio.sleep(2)
        assert ((await bench.job(job)).state, worker.stats.stuck) == (State.FAILED, 1)
        behind = await bench.enqueue("quick")
        await asyncio.sleep(100)
        assert (await bench.job(behind)).state is State.READY
        release.set()
        await asyncio.sleep(2)
        assert ((await bench.job(behind)).state, worker.stats.stuck) == (State.DONE, 0)
        worker.stop()
        await running

    virtually(scenario)


def test_i21_middleware_that_hangs_before_the_handler_is_ended_too(virtually: Virtually) -> None:
    async def hangs(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:
        await asyncio.sleep(3600)
        return await run()

    async def never_reached() -> None: ...

    async def scenario(bench: Bench) -> None:
        bench.task(never_reached, timeout=10, retry=Retry(attempts=1))
        job = await bench.enqueue("never_reached")
        await bench.run_until_idle(middleware=(hangs,))
        assert asyncio.get_running_loop().time() < 10.1
        error = (await bench.job(job)).error
        assert error is not None
        assert error.type == "Timeout"

    virtually(scenario)


def test_i21_a_stuck_slot_is_reported(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        over = asyncio.Event()

        async def deaf() -> None:
            while not over.is_set():
                try:
                    await over.wait()
                except asyncio.CancelledError:
                    continue

        bench.task(deaf, timeout=10, retry=Retry(attempts=1))
        job = await bench.enqueue("deaf")
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(16)
        [stuck] = bench.events_of(SlotStuck)
        assert (stuck.job, stuck.task, stuck.seconds) == (job, "deaf", 15)
        assert worker.stats.stuck == 1
        over.set()
        worker.stop()
        await running

    virtually(scenario)
