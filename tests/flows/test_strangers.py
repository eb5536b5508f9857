"""A step whose task no worker knows, day after day (I17: every flow ends)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.flows.support import claim_of
from tidemill.core.claims import Settlement
from tidemill.core.courses import Kind
from tidemill.core.flow_jobs import job_id
from tidemill.core.graph import Graph, Node, Work
from tidemill.core.graph_state import FlowState
from tidemill.core.outcomes import Done
from tidemill.core.queues import DAY, HOUR
from tidemill.flows.advancing import beginning
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.definition import TaskDefinition, define
from tidemill.telemetry.signals import Signals
from tidemill.testing.manual import SeededEntropy
from tidemill.testing.virtual import VirtualClock, VirtualLoop
from tidemill.worker.advancer import Advancer
from tidemill.worker.emitter import Emitter
from tidemill.worker.leader import Leader

FLOW = "dub/v"


class Fleet:
    """Workers that do nothing but advance flows."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.clock = VirtualClock(loop)
        self.store = MemoryStore(clock=self.clock, entropy=SeededEntropy(1))

    async def begin(self, *tasks: str) -> None:
        """One step after the other."""
        nodes = [Node(name=task, work=Work(task=task, queue="q", priority=5)) for task in tasks]
        after = [Node(name=one.name, work=one.work, after=(nodes[0].name,)) for one in nodes[1:]]
        graph = Graph(nodes=(nodes[0], *after))
        await self.store.advance([await beginning(self.store, known(*tasks), FLOW, "dub", graph)])

    def worker(self, *tasks: str) -> Advancer:
        emitter = Emitter(Signals(), "w", self.clock, 0.0)
        return Advancer(self.store, known(*tasks), Leader(self.store, "w", emitter, every=2.0), emitter)

    async def state(self) -> FlowState:
        [course] = await self.store.courses(Kind.FLOW, [FLOW])
        assert course is not None
        return FlowState(course.state)


def known(*tasks: str) -> dict[str, TaskDefinition]:
    async def handler() -> None: ...

    return {task: define(handler, name=task) for task in tasks}


async def sweeps(worker: Advancer, seconds: float) -> None:
    """As a leader does, only not every second."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        while await worker.sweep():
            pass
        await asyncio.sleep(600)


def test_after_a_day_in_which_nobody_knew_it_it_fails() -> None:
    """However old the flow is: another step may have taken its time."""

    async def live(fleet: Fleet) -> None:
        await fleet.begin("slow", "strange")
        await asyncio.sleep(3 * DAY)
        await end(fleet, "slow")
        await sweeps(fleet.worker("slow"), DAY - HOUR)
        assert await fleet.state() is FlowState.RUNNING
        await sweeps(fleet.worker("slow"), HOUR)
        assert await fleet.state() is FlowState.RUNNING, "it has not looked for an hour itself"
        await sweeps(fleet.worker("slow"), HOUR + 1300)
        assert await fleet.state() is FlowState.FAILED
        [job] = await fleet.store.get([job_id(FLOW, "strange")])
        assert job is not None
        assert job.error is not None
        assert job.error.message == "task: no worker knew 'strange' for 24 hours"

    run(live)


def test_what_somebody_knew_in_time_is_waited_for_anew() -> None:
    async def live(fleet: Fleet) -> None:
        await fleet.begin("slow", "strange")
        await end(fleet, "slow")
        await sweeps(fleet.worker("slow"), DAY - HOUR)
        await sweeps(fleet.worker("strange"), HOUR)
        [job] = await fleet.store.get([job_id(FLOW, "strange")])
        assert job is not None
        assert job.error is None
        assert await fleet.state() is FlowState.RUNNING

    run(live)


async def end(fleet: Fleet, step: str) -> None:
    [claimed] = (await fleet.store.claim(claim_of("q"))).jobs
    assert claimed.id == job_id(FLOW, step)
    await fleet.store.settle([Settlement(claimed.id, claimed.fence, claimed.claim, Done())])


def run(live: Callable[[Fleet], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualLoop(seed=1)
    try:
        loop.run_until_complete(live(Fleet(loop)))
    finally:
        loop.close()
