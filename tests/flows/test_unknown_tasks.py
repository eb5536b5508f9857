"""A step whose task is unknown to every worker, day after day (I17: every flow ends)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.flows.support import claim_of
from tidemill.core.claims import Settlement
from tidemill.core.documents import DocumentKind
from tidemill.core.flow_graph import FlowGraph, JobTemplate, StepNode
from tidemill.core.flow_progress import FlowState
from tidemill.core.jobs import flow_job_id
from tidemill.core.outcomes import Success
from tidemill.core.queues import DAY_SECONDS, HOUR_SECONDS
from tidemill.flows.advance import make_first_advance
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.definition import TaskDefinition, make_task_definition
from tidemill.telemetry.listeners import Signals
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.virtual_loop import VirtualLoop
from tidemill.worker.event_emitter import EventEmitter
from tidemill.worker.flow_advancer import FlowAdvancer
from tidemill.worker.leadership import LeaderElection

FLOW = "dub/v"


class Fleet:
    """Workers that only advance flows."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.clock = VirtualClock(loop)
        self.store = MemoryStore(clock=self.clock, entropy=SeededEntropy(1))

    async def begin(self, *tasks: str) -> None:
        """Starts a flow with one step after the other."""
        nodes = [StepNode(name=task, work=JobTemplate(task=task, queue="q", priority=5)) for task in tasks]
        after = [StepNode(name=one.name, work=one.work, after=(nodes[0].name,)) for one in nodes[1:]]
        graph = FlowGraph(nodes=(nodes[0], *after))
        await self.store.advance([await make_first_advance(self.store, known(*tasks), FLOW, "dub", graph)])

    def worker(self, *tasks: str) -> FlowAdvancer:
        emitter = EventEmitter(Signals(), "w", self.clock, 0.0)
        return FlowAdvancer(
            self.store, known(*tasks), LeaderElection(self.store, "w", emitter, every=2.0), emitter
        )

    async def state(self) -> FlowState:
        [document] = await self.store.documents(DocumentKind.FLOW, [FLOW])
        assert document is not None
        return FlowState(document.state)


def known(*tasks: str) -> dict[str, TaskDefinition]:
    async def handler() -> None: ...

    return {task: make_task_definition(handler, name=task) for task in tasks}


async def advance_for(worker: FlowAdvancer, seconds: float) -> None:
    """Advances the worklist like a leader, but not every second."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        while await worker.sweep():
            pass
        await asyncio.sleep(600)


def test_a_task_unknown_to_all_workers_for_a_day_fails() -> None:
    """The age of the flow does not matter: another step may have taken that time."""

    async def live(fleet: Fleet) -> None:
        await fleet.begin("slow", "strange")
        await asyncio.sleep(3 * DAY_SECONDS)
        await end(fleet, "slow")
        await advance_for(fleet.worker("slow"), DAY_SECONDS - HOUR_SECONDS)
        assert await fleet.state() is FlowState.RUNNING
        await advance_for(fleet.worker("slow"), HOUR_SECONDS)
        assert await fleet.state() is FlowState.RUNNING, "it has not looked for an hour itself"
        await advance_for(fleet.worker("slow"), HOUR_SECONDS + 1300)
        assert await fleet.state() is FlowState.FAILED
        [job] = await fleet.store.get([flow_job_id(FLOW, "strange")])
        assert job is not None
        assert job.error is not None
        assert job.error.message == "task: no worker knew 'strange' for 24 hours"

    run(live)


def test_the_wait_starts_again_after_a_worker_knew_the_task() -> None:
    async def live(fleet: Fleet) -> None:
        await fleet.begin("slow", "strange")
        await end(fleet, "slow")
        await advance_for(fleet.worker("slow"), DAY_SECONDS - HOUR_SECONDS)
        await advance_for(fleet.worker("strange"), HOUR_SECONDS)
        [job] = await fleet.store.get([flow_job_id(FLOW, "strange")])
        assert job is not None
        assert job.error is None
        assert await fleet.state() is FlowState.RUNNING

    run(live)


async def end(fleet: Fleet, step: str) -> None:
    [claimed] = (await fleet.store.claim(claim_of("q"))).jobs
    assert claimed.id == flow_job_id(FLOW, step)
    await fleet.store.settle([Settlement(claimed.id, claimed.fence, claimed.claim, Success())])


def run(live: Callable[[Fleet], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualLoop(seed=1)
    try:
        loop.run_until_complete(live(Fleet(loop)))
    finally:
        loop.close()
