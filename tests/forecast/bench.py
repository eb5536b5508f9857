"""A plan, and then the same jobs on real workers, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tidemill import Task, Tidemill
from tidemill.inspect.plan import Plan
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.virtual_loop import START_TIME, run_virtual

PATIENCE = 60 * 86_400.0


class Bench:
    """`starts` and `ends` are wall times by job number."""

    def __init__(self, clock: VirtualClock, concurrency: int = 100) -> None:
        entropy = SeededEntropy(3)
        self.clock = clock
        self.app = Tidemill(store=MemoryStore(clock=clock, entropy=entropy), clock=clock, entropy=entropy)
        self.concurrency = concurrency
        self.starts: dict[int, float] = {}
        self.ends: dict[int, float] = {}
        self._wanted: set[int] = set()
        self._all = asyncio.Event()
        self._running: list[tuple[Any, asyncio.Task[None]]] = []

    def task(self, name: str = "call", takes: float = 0.0, **options: Any) -> Task[[int], None]:
        @self.app.task(name=name, timeout=PATIENCE, **options)
        async def call(number: int) -> None:
            await self.ran(number, takes)

        return call

    async def ran(self, number: int, takes: float = 0.0) -> None:
        self.starts[number] = self.clock.wall()
        await asyncio.sleep(takes)
        self.ends[number] = self.clock.wall()
        if self._wanted == {number}:
            self._all.set()
        self._wanted.discard(number)

    def work(self, count: int = 1) -> None:
        for _ in range(count):
            worker = self.app.worker(heartbeat_thread=False, isolation=False, concurrency=self.concurrency)
            self._running.append((worker, asyncio.create_task(worker.run())))

    async def stop(self) -> None:
        for worker, _ in self._running:
            worker.stop()
        await asyncio.gather(*(run for _, run in self._running))
        self._running.clear()

    async def send(self, task: Task[[int], None], numbers: range, **options: Any) -> None:
        chosen = task.using(**options) if options else task
        await self.app.enqueue_many(chosen.job(number) for number in numbers)

    async def done(self, numbers: range) -> float:
        """Returns the wall time when the last of them ended."""
        self._all.clear()
        self._wanted = set(numbers) - self.ends.keys()
        if self._wanted:
            await self._all.wait()
        return max(self.ends[number] for number in numbers)


Scenario = Callable[[Bench], Coroutine[Any, Any, None]]


def virtually(scenario: Scenario, *, start: float = START_TIME, slots: int = 100) -> None:
    async def run() -> None:
        bench = Bench(VirtualClock(), slots)
        async with bench.app:
            await scenario(bench)
            await bench.stop()

    run_virtual(run(), start=start)


def close_to(plan: Plan, done: float) -> None:
    """Fails unless the plan is within a tenth of the real duration."""
    assert plan.done_at is not None
    took = done - plan.now
    assert abs(plan.done_at - done) <= 0.1 * took + 0.5, f"planned {plan.seconds}, took {took}; {plan}"
