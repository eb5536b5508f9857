"""One history of flows: runs a fleet, flows and faults until it is idle, then retries the failed flows."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from tests.simulation.faults import Faults, Profile
from tests.simulation.fleet import Fleet
from tests.simulation.flows.flow_operators import FlowOperator
from tests.simulation.flows.handlers import FlowHandlers
from tests.simulation.flows.invariants import (
    CancelledFlowStops,
    FlowKeepsJobs,
    FlowRetention,
    NoStepTwice,
    check_at_rest,
    flows_in,
)
from tests.simulation.flows.random_flows import QUEUE
from tests.simulation.history import SimulationResult
from tests.simulation.invariants.claims import Fences
from tests.simulation.invariants.state_transitions import LegalMoves
from tests.simulation.network import MAX_ARRIVAL_SECONDS, NetworkConditions
from tests.simulation.outcome_log import OutcomeLog
from tests.simulation.store_monitor import StoreMonitor
from tests.simulation.trace import Trace, Violation, report_worker_errors
from tidemill.core.flow_progress import FINAL_FLOW_STATES, FlowState
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import FINAL
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.virtual_loop import VirtualDeadlock, VirtualLoop, VirtualStandstill

STORMS = Profile("storms", storms=30)
PROFILES = (
    STORMS,
    Profile("everything", 6, 3, 2, 4, 1, wrong_clocks=True, lost_wakeups=0.2),
    Profile("kills", kills=12, drains=2),
    Profile("pauses", pauses=8, kills=2),
    Profile("network", storms=12, lost_wakeups=0.5),
    Profile("deaf", lost_wakeups=1.0, kills=4),
    Profile("calm"),
)
REST, ROUNDS = 400, 3


class FlowWorld:
    def __init__(self, loop: VirtualLoop, chance: random.Random, profile: Profile) -> None:
        self.loop, self.chance = loop, chance
        self.duration = chance.uniform(10, 30)
        clock = VirtualClock(loop)
        self.trace = Trace(loop.time)
        self.store = MemoryStore(clock=clock, entropy=SeededEntropy(chance.getrandbits(32)))
        self.records = self.store._shared.records
        self.monitor = StoreMonitor(self.store, clock, self.trace, self.violated)
        self.handlers = FlowHandlers({}, lambda: self.records.jobs, self.violated)
        self.fleet = Fleet(
            loop,
            self.monitor,
            NetworkConditions(),
            OutcomeLog(loop.time),
            self.handlers,  # type: ignore[arg-type]  # all a fleet asks of it is tasks
            self.trace,
            random.Random(chance.getrandbits(32)),
            profile.wrong_clocks,
        )
        self.faults = Faults(self.fleet, clock, profile, random.Random(chance.getrandbits(32)))
        self.violation: Violation | None = None
        self.broken = asyncio.Event()
        self.stay = FlowRetention(self.records)
        self.monitor.checkers = [
            LegalMoves(),
            Fences(),
            NoStepTwice(),
            FlowKeepsJobs(self.records),
            CancelledFlowStops(self.records),
            self.stay,
        ]

    async def live(self) -> None:
        # The queue prunes ended jobs at once; jobs of a flow stay anyway.
        at_once = Retention(age=0.0, count=None)
        await self.store.declare({QUEUE: QueueSettings(keep_done=at_once, keep_failed=at_once)})
        for _ in range(self.chance.choice((1, 2, 3))):
            self.fleet.start(knows_rare=self.chance.random() < 0.7)
        chance = random.Random(self.chance.getrandbits(32))
        self.composer = FlowOperator(self.fleet.network("composer"), self.handlers, self.trace, chance)
        sending = self.composer.run(chance.choice((1, 2, 4)), self.duration)
        process, task = self.loop.spawn("composer", sending)
        self.faults.producers.append(process)
        await self.faults.run(self.duration)
        await self.faults.stop_faults()
        await asyncio.sleep(MAX_ARRIVAL_SECONDS)
        while process.alive and not task.done():  # noqa: ASYNC110 - virtual seconds are free
            await asyncio.sleep(1)
        self.composer.accepted |= set(flows_in(self.records))  # it may have died meanwhile
        await self._wait_until_idle()
        await self._retry_failed()

    async def _wait_until_idle(self) -> None:
        """Waits until the fleet is idle. Poison jobs may kill the worker that knows every task, so it
        starts new ones."""
        for second in range(REST):
            if self._at_rest():
                break
            if second % 50 == 0:
                self.fleet.start()
            await asyncio.sleep(1)
        check_at_rest(self.records, self.handlers.graphs, self.composer.accepted - self.stay.gone)

    async def _retry_failed(self) -> None:
        """Retries failed flows by hand: a retried flow repeats no finished step, and ends."""
        for _ in range(ROUNDS):
            await self.composer.retry_failed()
            await self._wait_until_idle()
        for flow, document in flows_in(self.records).items():
            if document.state != FlowState.DONE and self.handlers.graphs[flow].timeout is None:
                raise Violation("I17", f"{flow} was retried {ROUNDS} times, and is {document.state}")

    def _at_rest(self) -> bool:
        over = all(document.state in FINAL_FLOW_STATES for document in flows_in(self.records).values())
        return (
            over and not self.records.work_marks and all(j.state in FINAL for j in self.records.jobs.values())
        )

    def violated(self, violation: Violation) -> None:
        if self.violation is None:
            self.violation = violation
            self.trace.add("VIOLATION", str(violation))
            self.broken.set()

    def seen(self) -> Counter[str]:
        seen = Counter(self.faults.happened)
        seen.update(f"flow {document.state}" for document in flows_in(self.records).values())
        seen["gone"] = len(self.stay.gone)
        seen["jobs"] = len(self.records.jobs)
        seen["compensated"] = sum("!" in job for job in self.records.jobs)
        seen["retried"] = sum(job.generation > 0 for job in self.records.jobs.values())
        seen["mapped"] = sum(
            job.flow is not None and job.flow.index > 0 for job in self.records.jobs.values()
        )
        return seen


def run_flows(seed: int, profile: Profile | None = None) -> SimulationResult:
    chance = random.Random(seed)
    chosen = profile or chance.choice(PROFILES)
    loop = VirtualLoop(seed=seed)
    world = FlowWorld(loop, chance, chosen)
    report_worker_errors(world.fleet.signals, lambda traceback: world.violated(Violation("bug", traceback)))
    try:
        loop.set_exception_handler(lambda _loop, context: _unhandled(world, context))
        loop.run_until_complete(_live(world))
    except (VirtualDeadlock, VirtualStandstill) as error:
        world.violated(Violation("time", str(error)))
    finally:
        loop.set_exception_handler(lambda _loop, _context: None)
        loop.close()
    return SimulationResult(seed, chosen.name, world.violation, world.trace, world.seen())


def _unhandled(world: FlowWorld, context: dict[str, object]) -> None:
    world.violated(Violation("bug", f"{context.get('message')}: {context.get('exception')!r}"))


async def _live(world: FlowWorld) -> None:
    life = asyncio.create_task(world.live())
    broken = asyncio.create_task(world.broken.wait())
    await asyncio.wait([life, broken], return_when=asyncio.FIRST_COMPLETED)
    world.fleet.kill_all()
    if life.done():
        try:
            life.result()
        except Violation as violation:
            world.violated(violation)
