"""Workers that die during a batch: no job is lost, and poison charges only itself."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import cast

import msgspec

from tests.simulation.isolation import SimulatedIsolation
from tests.worker.bench import Bench, Virtually
from tidemill.core.jobs import Job
from tidemill.core.limits import Limit
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.testing.virtual_loop import VirtualLoop
from tidemill.testing.virtual_processes import kill_current_process

MOST_CALLS_FOR_ONE_OF_20 = 16
"""Single calls would be 22: the first batch, 19 innocent jobs, and the poisonous job twice."""


async def finished(bench: Bench, ids: list[str]) -> list[Job]:
    await bench.ended(*ids)
    return [await bench.job(id_) for id_ in ids]


def keep_workers(bench: Bench, count: int) -> None:
    """Keeps this many workers running in processes, as a supervisor does."""
    loop = cast("VirtualLoop", asyncio.get_running_loop())

    def start() -> None:
        process, _ = loop.spawn(f"worker {len(bench.running)}", run())
        process.on_kill(start)

    async def run() -> None:
        await bench.worker(runner=SimulatedIsolation, concurrency=2).run()

    for _ in range(count):
        start()


def test_i8_poison_in_a_batch_fails_alone_and_charges_no_other_job(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        calls: list[list[int]] = []

        async def embed(numbers: list[int]) -> list[int]:
            calls.append(numbers)
            await asyncio.sleep(1)
            if 7 in numbers:
                await kill_current_process()
            return numbers

        pool = await bench.pool("api", Limit.requests(1000, per="minute"))
        bench.batch_task(embed, max_items=20, pool=pool, retry=Retry(attempts=1))
        ids = await bench.items("embed", *range(20))
        keep_workers(bench, 2)
        jobs = await finished(bench, ids)
        assert calls[0] == list(range(20))
        deadly = [call for call in calls if 7 in call]
        assert all(len(after) <= len(before) for before, after in pairwise(deadly)), "it is halved"
        assert deadly[-1] == [7], "it fails alone"
        assert len(calls) <= MOST_CALLS_FOR_ONE_OF_20
        for number, job in enumerate(jobs):
            if number == 7:
                assert (job.state, job.reason) == (State.FAILED, "poison")
            else:
                assert (job.state, job.attempts) == (State.DONE, 1)
                assert job.result == msgspec.json.encode(number)

    virtually(scenario)


def test_i1_workers_killed_at_any_step_of_a_batch_lose_no_job(virtually: Virtually) -> None:
    """Kills workers during calls that did nothing wrong."""

    async def scenario(bench: Bench) -> None:
        loop = cast("VirtualLoop", asyncio.get_running_loop())
        seen: list[int] = []

        async def embed(numbers: list[int]) -> list[int]:
            await asyncio.sleep(2)
            seen.extend(numbers)
            return [-number for number in numbers]

        pool = await bench.pool("api", Limit.requests(100, per="minute"))
        bench.batch_task(embed, max_items=10, pool=pool)
        ids = await bench.items("embed", *range(60))
        for step in (40, 90, 130, 170, 210, 300):

            async def run() -> None:
                await bench.worker(runner=SimulatedIsolation, concurrency=2).run()

            process, _ = loop.spawn(f"killed at {step}", run())
            process.at_step(step, process.kill)
            await asyncio.sleep(20)
            process.kill()
        keep_workers(bench, 2)
        jobs = await finished(bench, ids)
        assert [job.result for job in jobs] == [msgspec.json.encode(-number) for number in range(60)]
        assert {job.attempts for job in jobs} == {1}
        assert {*seen} == {*range(60)}
        await asyncio.sleep(120)
        assert await bench.used("api") == {"requests per minute": 0}, "nothing that was reserved is left"

    virtually(scenario)


def test_after_a_kill_a_batch_comes_back_in_two_calls(virtually: Virtually) -> None:
    """Nothing was wrong with the 90 jobs: one call each would be 90."""

    async def scenario(bench: Bench) -> None:
        loop = cast("VirtualLoop", asyncio.get_running_loop())
        calls: list[int] = []

        async def embed(numbers: list[int]) -> list[int]:
            calls.append(len(numbers))
            if len(calls) == 1:
                process.kill()
            await asyncio.sleep(1)
            return numbers

        async def run() -> None:
            await bench.worker(runner=SimulatedIsolation, concurrency=2).run()

        bench.batch_task(embed, max_items=100)
        ids = await bench.items("embed", *range(90))
        process, _ = loop.spawn("killed", run())
        keep_workers(bench, 1)
        jobs = await finished(bench, ids)
        assert {job.state for job in jobs} == {State.DONE}
        assert (calls[0], len(calls), sum(calls[1:])) == (90, 3, 90)
        assert max(calls[1:]) < 60

    virtually(scenario)
