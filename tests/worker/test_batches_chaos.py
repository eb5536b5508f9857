"""Batches under faults: workers are killed, suspended past their lease and drained, replies get lost, jobs
are cancelled; some items are poison, bad or failing. The handler keeps a record outside the store."""

from __future__ import annotations

import asyncio
import random
from typing import cast

import msgspec
import pytest

from tests.simulation.isolation import SimulatedIsolation
from tests.worker.bench import Bench, Unreliable
from tests.worker.fake_provider import Provider
from tidemill.core.filters import Filter
from tidemill.core.limits import Limit
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.batches import FailedItem
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.virtual_loop import VirtualLoop, run_virtual
from tidemill.testing.virtual_processes import VirtualProcess, current_process, kill_current_process
from tidemill.worker import Worker

ITEMS, A_MINUTE = 60, 40


class Storm:
    """`cancelled` are jobs whose cancellation was confirmed: nothing of them may be recorded later."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, self.chance = bench, random.Random(seed)
        self.loop = cast("VirtualLoop", asyncio.get_running_loop())
        self.provider = Provider()
        self.poison = {self.chance.randrange(ITEMS)}
        self.bad = {self.chance.randrange(ITEMS) for _ in range(2)} - self.poison
        self.failing = {self.chance.randrange(ITEMS) for _ in range(3)} - self.poison - self.bad
        self.crowded: list[list[int]] = []
        self.fleet: dict[VirtualProcess, tuple[Worker, Unreliable]] = {}
        self.cancelled: set[str] = set()

    async def embed(self, numbers: list[int]) -> list[int | FailedItem]:
        self.provider.call()
        process = current_process()
        assert process is not None
        if "/" in process.name:
            assert len(numbers) == 1, "a suspect runs alone"
        await asyncio.sleep(self.chance.uniform(0, 3))
        if self.poison & {*numbers}:
            await kill_current_process()
        if self.bad & {*numbers}:
            raise ValueError("one of them is bad")
        return [FailedItem("no", retry=False) if number in self.failing else -number for number in numbers]

    def start(self) -> None:
        store = Unreliable(self.bench.store)
        worker = self.bench.worker(runner=SimulatedIsolation, store=store, concurrency=2, grace=2)
        process, _ = self.loop.spawn(f"worker {self.chance.random()}", worker.run())
        self.fleet[process] = worker, store
        process.on_kill(lambda: self._died(process))

    def _died(self, process: VirtualProcess) -> None:
        self.fleet.pop(process)
        self.start()

    async def rage(self, ids: list[str]) -> None:
        for _ in range(25):
            await asyncio.sleep(self.chance.uniform(0.2, 4))
            process = self.chance.choice(list(self.fleet))
            worker, store = self.fleet[process]
            match self.chance.choice(("kill", "pause", "drain", "lose", "lose", "cancel")):
                case "kill":
                    process.kill()
                case "pause":
                    process.pause(self.chance.choice((1.0, 45.0)))
                case "drain":
                    self.loop.signal(process, worker.stop)
                    self.fleet.pop(process)
                    self.start()
                case "lose":
                    store.lose += 1
                case _:
                    id_ = self.chance.choice(ids)
                    amended = await self.bench.store.amend(Filter(ids=(id_,)), CancelJobs("not wanted"))
                    self.cancelled |= {id_} if amended.changed else set()


async def _history(seed: int) -> None:
    clock = VirtualClock()
    bench = Bench(await MemoryStore(clock=clock, entropy=SeededEntropy(seed)).open(), clock)
    storm = Storm(bench, seed)

    async def embed(numbers: list[int]) -> list[int | FailedItem]:
        return await storm.embed(numbers)

    pool = await bench.pool("api", Limit.requests(A_MINUTE, per="minute"))
    bench.batch_task(embed, max_items=12, linger=1, pool=pool, retry=Retry(attempts=1), timeout=30)
    ids = await bench.items("embed", *range(ITEMS))
    for _ in range(3):
        storm.start()
    await storm.rage(ids)
    await bench.ended(*ids)
    for number, id_ in enumerate(ids):
        job = await bench.job(id_)
        expected = -number if job.state is State.DONE else None
        assert job.result == (None if expected is None else msgspec.json.encode(expected))
        if id_ in storm.cancelled:
            assert job.state is State.CANCELLED
        elif number in storm.poison:
            assert (job.state, job.reason) == (State.FAILED, "poison")
        elif number in storm.bad | storm.failing:
            assert (job.state, job.attempts) == (State.FAILED, 1)
        else:
            assert (job.state, job.attempts) == (State.DONE, 1), "no neighbour pays"
    assert storm.provider.most_within(60) <= A_MINUTE
    await asyncio.sleep(180)
    assert await bench.used("api") == {"requests per minute": 0}, "nothing that was reserved is left"


@pytest.mark.parametrize("seed", range(25))
def test_i1_i8_i14_i16_i19_no_job_is_lost_or_pays_for_another(seed: int) -> None:
    run_virtual(_history(seed), seed=seed)
