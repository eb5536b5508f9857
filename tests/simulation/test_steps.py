"""I18 in bad weather: workers die and freeze, requests and replies are lost, late and doubled. The function
that is paid for keeps the books."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from tests.simulation.network import LATEST, Network, Weather
from tests.simulation.trace import Trace, Violation
from tests.simulation.watch import Watch
from tidemill.core.checkpoints import OnUnknown
from tidemill.core.job import Group, NewJob
from tidemill.core.retry import Retry
from tidemill.core.states import FINAL, State
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.context import Context
from tidemill.tasks.definition import define
from tidemill.telemetry.signals import Signals
from tidemill.testing.manual import SeededEntropy
from tidemill.testing.virtual import VirtualClock, VirtualLoop
from tidemill.testing.virtual_processes import Process
from tidemill.worker import Worker, WorkerOptions

JOBS = [f"job-{number}" for number in range(4)]
LEASE = 4.0
STORM = Weather(slow=0.2, lost_request=0.1, lost_reply=0.15, doubled=0.2, lost_wakeup=0.5)
SEEDS = range(12)


class Refused(Exception):
    """As client libraries have it: answered, and not billed."""

    status_code = 429


class Life:
    """Some jobs, each with one paid step, and three workers to whom things happen."""

    def __init__(self, loop: VirtualLoop, seed: int, on_unknown: OnUnknown) -> None:
        self.loop, self.chance, self.on_unknown = loop, random.Random(seed), on_unknown
        self.clock = VirtualClock(loop)
        self.store = MemoryStore(clock=self.clock, entropy=SeededEntropy(seed))
        self.watch = Watch(self.store, self.clock, Trace(loop.time), self._violated)
        self.weather = Weather(**{name: getattr(STORM, name) for name in Weather.__slots__})
        self.bills: Counter[str] = Counter()
        self.got: dict[str, set[int]] = {job: set() for job in JOBS}
        self.processes: list[Process] = []
        self.answers = 0

    def _violated(self, violation: Violation) -> None:
        raise AssertionError(violation)

    async def ask(self, job: str) -> int:
        await asyncio.sleep(self.chance.uniform(0, 1))
        if self.chance.random() < 0.2:
            raise Refused
        self.bills[job] += 1
        self.answers += 1
        answer = self.answers  # no two calls get the same
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
            Network(self.loop, self.watch, self.weather, f"w{number}", self.chance.getrandbits(32)),
            {"work": define(self.work, name="work", retry=Retry(attempts=50, first=0.5, factor=1))},
            options=WorkerOptions(lease=LEASE, reclaim_every=1, heartbeat_thread=False, isolation=False),
            clock=self.clock,
            entropy=SeededEntropy(self.chance.getrandbits(32)),
            signals=Signals(),
        )
        self.processes.append(self.loop.spawn(f"w{number}", worker.run())[0])

    async def live(self) -> None:
        jobs = [NewJob(id=job, task="work", payload=b'{"job":"%s"}' % job.encode()) for job in JOBS]
        await self.store.insert([Group("default", tuple(jobs))])
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
        self.weather.clear()
        await asyncio.sleep(LATEST)
        self.start()
        while any(job is None or job.state not in FINAL for job in await self.store.get(JOBS)):  # noqa: ASYNC110 - virtual seconds are free
            await asyncio.sleep(1)


def _lived(seed: int, on_unknown: OnUnknown) -> Life:
    loop = VirtualLoop(seed=seed)
    try:
        life = Life(loop, seed, on_unknown)
        loop.run_until_complete(asyncio.wait_for(life.live(), 600))
    finally:
        loop.close()
    return life


def _look(life: Life) -> Counter[str]:
    """What holds of every job, whatever happened; answers what did."""
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
            seen += _look(_lived(seed, on_unknown))
        except BaseException as error:
            error.add_note(f"seed {seed}, {on_unknown}")
            raise
    assert seen["done"], seen
    assert bool(seen["paid again"]) is (on_unknown == "retry"), seen
    assert bool(seen["failed unknown outcome"]) is (on_unknown == "park"), seen
