"""A worker whose lease has ended starts no handler of that claim (I6, I7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.worker.bench import Bench, Unreliable, Virtually
from tidemill.contract.jobs import ExtendResult
from tidemill.core.claims import Heartbeat
from tidemill.core.outcomes import Success
from tidemill.core.states import State
from tidemill.errors import StoreUnavailable
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.events import JobReleased, LeaseExpired
from tidemill.worker.attempt import Attempt
from tidemill.worker.isolation.runner import IsolatedResult


class SlowStart:
    """Takes some seconds to start a process; then the handler ends at once."""

    runs_middleware = False
    lifespan_problem = None

    def __init__(self, seconds: float) -> None:
        self._seconds, self.started = seconds, 0

    async def run(
        self,
        attempt: Attempt,
        definition: TaskDefinition,
        chance: float,
        started: Callable[[], None],
        middleware: int,
    ) -> IsolatedResult:
        await asyncio.sleep(self._seconds)
        started()
        self.started += 1
        return Success()

    async def drain(self) -> None: ...
    def close(self) -> None: ...


class Deaf(Unreliable):
    """A store that receives no heartbeats while `deaf`."""

    deaf = False

    async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
        if self.deaf:
            raise StoreUnavailable("no heartbeat")
        return await super().extend(heartbeat)


async def apart() -> None: ...


async def together(items: list[int]) -> list[Any]:
    raise AssertionError(items)


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize(("seconds", "is_deaf"), [(29, True), (31, True), (31, False), (300, False)])
def test_i7_no_handler_starts_after_its_lease(
    virtually: Virtually, seconds: float, is_deaf: bool, is_batch: bool
) -> None:
    """Renewed leases last; the first one lasts 30 seconds from when the claim was sent."""

    async def scenario(bench: Bench) -> None:
        runner, store = SlowStart(seconds), Deaf(bench.store)
        if is_batch:
            bench.batch_task(together, isolate=True, max_items=2)
            job = (await bench.items("together", 1))[0]
        else:
            bench.task(apart, isolate=True)
            job = await bench.enqueue("apart")
        store.deaf = is_deaf
        worker = bench.worker(store=store, runner=lambda _: runner, lease=30.0, reclaim_every=1000)
        bench.start(worker)
        await asyncio.sleep(seconds + 0.5)
        is_late = is_deaf and seconds > 30
        assert runner.started == (not is_late)
        assert worker.stats.expired == is_late
        if is_late:
            [expired] = bench.events_of(LeaseExpired)
            assert expired.job == job
            assert expired.late == pytest.approx(1, abs=0.1)
            assert [event.reason for event in bench.events_of(JobReleased)] == ["lease over"]
            found = await bench.job(job)
            assert (found.attempts, found.crashes) == (0, 0)
            assert found.state in (State.READY, State.RUNNING)
        worker.stop_now()

    virtually(scenario)
