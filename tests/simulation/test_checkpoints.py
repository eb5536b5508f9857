"""Checks I18 under faults: workers die and freeze; messages are lost, late and repeated. The paid function
counts its calls."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from tests.simulation.network import MAX_ARRIVAL_SECONDS, Network, NetworkConditions
from tests.simulation.store_monitor import StoreMonitor
from tests.simulation.trace import Trace, Violation
from tidemill.core.checkpoints import OnUnknown
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.retry import Retry
from tidemill.core.states import FINAL, State
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.context import Context
from tidemill.tasks.definition import make_task_definition
from tidemill.telemetry.listeners import Signals
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.virtual_loop import VirtualLoop
from tidemill.testing.virtual_processes import VirtualProcess
from tidemill.worker import Worker, WorkerOptions

JOBS = [f"job-{number}" for number in range(4)]
LEASE = 4.0
STORM = NetworkConditions(slow=0.2, lost_request=0.1, lost_reply=0.15, doubled=0.2, lost_wakeup=0.5)
SEEDS = range(12)


class UnbilledRefusal(Exception):
    """A refusal as client libraries raise it: answered, and not billed."""

    status_code = 429


class CheckpointScenario:
    """Some jobs with one paid step each, and three workers with faults."""

    def __init__(self, loop: VirtualLoop, seed: int, on_unknown: OnUnknown) -> None:
        self.loop, self.chance, self.on_unknown = loop, random.Random(seed), on_unknown
        self.clock = VirtualClock(loop)
        self.store = MemoryStore(clock=self.clock, entropy=SeededEntropy(seed))
        self.monitor = StoreMonitor(self.store, self.clock, Trace(loop.time), self._violated)
        self.conditions = NetworkConditions(
            **{name: getattr(STORM, name) for name in NetworkConditions.__slots__}
        )
        self.bills: Counter[str] = Counter()
        self.got: dict[str, set[int]] = {job: set() for job in JOBS}
        self.processes: list[VirtualProcess] = []
        self.answers = 0

    def _violated(self, violation: Violation) -> None:
        raise AssertionError(violation)

    async def ask(self, job: str) -> int:
        await asyncio.sleep(self.chance.uniform(0, 1))
        if self.chance.random() < 0.2:
            raise UnbilledRefusal
        self.bills[job] += 1
        self.answers += 1
        answer = self.answers  # every call returns another value
        await asyncio.sleep(self.chance.uniform(0, 2))
        if self.chance.random() < 0.2:
            raise ConnectionResetError("the answer was cut off")
        return answer

    async def work(self, ctx: Context, job: str) -> None:
        answer = await ctx.step("ask", self.ask, job, paid=True, on_unknown=self.on_unknown)
        self.got[job].add(answer)
        await asyncio.sleep(self.chance.uniform(0, 2))
        if self.chance.random() < 0.4:
            raise ValueError("after it was paid for")

    def start(self) -> None:
        number = len(self.processes) + 1
        worker = Worker(
            Network(self.loop, self.monitor, self.conditions, f"w{number}", self.chance.getrandbits(32)),
            {
                "work": make_task_definition(
                    self.work, name="work", retry=Retry(attempts=50, first=0.5, factor=1)
                )
            },
            options=WorkerOptions(lease=LEASE, reclaim_every=1, heartbeat_thread=False, isolation=False),
            clock=self.clock,
            entropy=SeededEntropy(self.chance.getrandbits(32)),
            signals=Signals(),
        )
        self.processes.append(self.loop.spawn(f"w{number}", worker.run())[0])

    async def live(self) -> None:
        jobs = [NewJob(id=job, task="work", payload=b'{"job":"%s"}' % job.encode()) for job in JOBS]
        await self.store.insert([JobGroup("default", tuple(jobs))])
        for _ in range(3):
            self.start()
        for _ in range(8):
            await asyncio.sleep(self.chance.uniform(0, 4))
            victim = self.chance.choice([process for process in self.processes if process.alive])
            if self.chance.random() < 0.5:
                victim.kill()
                self.start()
            else:
                victim.pause(self.chance.uniform(0.5, 3 * LEASE))
        self.conditions.clear()
        await asyncio.sleep(MAX_ARRIVAL_SECONDS)
        self.start()
        while any(job is None or job.state not in FINAL for job in await self.store.get(JOBS)):  # noqa: ASYNC110 - virtual seconds are free
            await asyncio.sleep(1)


def _run_scenario(seed: int, on_unknown: OnUnknown) -> CheckpointScenario:
    loop = VirtualLoop(seed=seed)
    try:
        life = CheckpointScenario(loop, seed, on_unknown)
        loop.run_until_complete(asyncio.wait_for(life.live(), 600))
    finally:
        loop.close()
    return life


def _check_scenario(life: CheckpointScenario) -> Counter[str]:
    """Checks every job, and returns the counts of what happened."""
    seen: Counter[str] = Counter()
    records = life.store._shared.records
    for job in JOBS:
        marks = list(records.checkpoints.get(job, {}).values())
        assert len(marks) <= 1
        assert len(life.got[job]) <= 1, f"{job}: attempts were given different results of one step"
        unknown = sum(mark.unknown for mark in marks)
        assert life.bills[job] <= 1 + unknown, f"{job}: paid again for what was known"
        if life.on_unknown == "park":
            assert life.bills[job] <= 1, f"{job}: paid twice under park"
        if records.jobs[job].state is State.DONE:
            assert [mark.result for mark in marks] == [b"%d" % answer for answer in life.got[job]]
        seen[f"{records.jobs[job].state} {records.jobs[job].reason or ''}".strip()] += 1
        seen["paid again"] += life.bills[job] > 1
    return seen


@pytest.mark.parametrize("on_unknown", ["retry", "park"])
def test_i18_a_step_has_one_result_and_nothing_known_is_paid_twice(on_unknown: OnUnknown) -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        try:
            seen += _check_scenario(_run_scenario(seed, on_unknown))
        except BaseException as error:
            error.add_note(f"seed {seed}, {on_unknown}")
            raise
    assert seen["done"], seen
    assert bool(seen["paid again"]) is (on_unknown == "retry"), seen
    assert bool(seen["failed unknown outcome"]) is (on_unknown == "park"), seen
