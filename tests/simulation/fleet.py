"""Worker processes: started, killed, paused, told to stop, and started again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.simulation.handlers import Handlers
from tests.simulation.isolation import SimulatedIsolation
from tests.simulation.ledger import Ledger
from tests.simulation.network import Network, Weather
from tests.simulation.provider import POOLS
from tests.simulation.trace import Trace
from tests.simulation.watch import Watch
from tests.simulation.workload import QUEUES
from tidemill.core.job import Job
from tidemill.telemetry.signals import Signals
from tidemill.testing.manual import SeededEntropy
from tidemill.testing.virtual import VirtualClock, VirtualLoop
from tidemill.testing.virtual_processes import Process, context_of
from tidemill.worker.options import FreshId, WorkerOptions
from tidemill.worker.worker import Worker

LEASE, RECLAIM, POLL, GRACE = 6.0, 2.0, 1.0, 2.0
"""The proportions of the defaults, in shorter times."""


@dataclass(slots=True)
class Running:
    process: Process
    worker: Worker
    network: Network


@dataclass
class Fleet:
    loop: VirtualLoop
    watch: Watch
    weather: Weather
    ledger: Ledger
    handlers: Handlers
    trace: Trace
    chance: random.Random
    wrong_clocks: bool
    signals: Signals = field(default_factory=Signals)
    running: dict[str, Running] = field(default_factory=dict)
    disturbed: float = 0.0  # when a storm or a pause last ended, or will
    died: float = 0.0  # when a worker last died, or the first one came back
    started: int = 0
    closing: bool = False

    def start(self, *, knows_rare: bool = True) -> None:
        if self.closing:
            return
        if not self.running:
            self.died = self.loop.time()  # nobody was there to notice anything
        self.started += 1
        name = f"w{self.started}"
        network = self.network(name)
        skew = self.chance.uniform(-300, 300) if self.wrong_clocks else 0.0
        worker = Worker(
            network,
            self.handlers.tasks(name, knows_rare=knows_rare),
            POOLS,
            options=_options(name, self.chance),
            clock=VirtualClock(self.loop, skew=skew),
            entropy=SeededEntropy(self.chance.getrandbits(32)),
            signals=self.signals,
            isolation=SimulatedIsolation,
        )
        process, _ = self.loop.spawn(name, self._run(name, worker))
        self.running[name] = Running(process, worker, network)
        process.at_death(lambda: self._died(name))
        self.trace.add(name, f"started{'' if knows_rare else ' without the rare task'}, clock {skew:+.0f} s")

    def network(self, name: str) -> Network:
        return Network(self.loop, self.watch, self.weather, name, self.chance.getrandbits(32))

    def pause(self, process: Process, seconds: float) -> None:
        self.trace.add(process.name, f"paused for {seconds:.1f} s")
        self.ledger.paused_at[process.name] = self.loop.time() + seconds
        self.disturbed = max(self.disturbed, self.loop.time() + seconds)
        process.pause(seconds)

    def stop(self, name: str) -> None:
        running = self.running[name]

        def terminate() -> None:
            self.trace.add(name, "SIGTERM")
            self.ledger.last_number[name] = running.network.last_number
            self.ledger.terminated.setdefault(name, self.loop.time())
            running.worker.stop()

        self.loop.signal(running.process, terminate)

    def holds(self, name: str, job: Job) -> bool:
        """Whether a living worker has this very claim in its hands."""
        running = self.running.get(name)
        if running is None or running.worker._crew is None:
            return False
        attempt = running.worker._crew._hands.held.get(job.id)
        return attempt is not None and (attempt.job.fence, attempt.job.claim) == (job.fence, job.claim)

    def kill_all(self) -> None:
        self.closing = True
        for running in list(self.running.values()):
            running.process.kill()

    async def _run(self, name: str, worker: Worker) -> None:
        await worker.run()
        self.trace.add(name, "returned")
        self._replace(name)
        if max(self.disturbed, self.died) < self.loop.time() - 2 * GRACE and not self.weather.bad:
            self.ledger.drained[name] = self.loop.time() - self.ledger.terminated[name]

    def _died(self, name: str) -> None:
        self.trace.add(name, "died")
        self.died = self.loop.time()
        self._replace(name)

    def _replace(self, name: str) -> None:
        """A supervisor starts another worker some time after one has gone, with an id of its own."""
        self.running.pop(name, None)
        delay, knows_rare = self.chance.uniform(0.2, 1.5 * LEASE), self.chance.random() < 0.7
        self.loop.call_later(delay, lambda: self.start(knows_rare=knows_rare), context=context_of(None))


def _options(name: str, chance: random.Random) -> WorkerOptions:
    return WorkerOptions(
        id=FreshId(name),
        queues={queue: chance.choice((1, 1, 3)) for queue in QUEUES},
        strict=chance.random() < 0.2,
        concurrency=chance.choice((2, 4, 8)),
        lease=LEASE,
        reclaim_every=RECLAIM,
        prune_every=5.0,
        look_every=2.0,
        grace=GRACE,
        poll=POLL,
        heartbeat_thread=False,
    )
