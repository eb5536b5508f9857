"""Starts, kills, pauses, stops and restarts worker processes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.simulation.handlers import Handlers
from tests.simulation.isolation import SimulatedIsolation
from tests.simulation.network import Network, NetworkConditions
from tests.simulation.outcome_log import OutcomeLog
from tests.simulation.provider import POOLS
from tests.simulation.store_monitor import StoreMonitor
from tests.simulation.trace import Trace
from tests.simulation.workload import QUEUES
from tidemill.core.jobs import Job
from tidemill.telemetry.listeners import Signals
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.virtual_loop import VirtualLoop
from tidemill.testing.virtual_processes import VirtualProcess, context_for_process
from tidemill.worker.options import UniqueWorkerId, WorkerOptions
from tidemill.worker.worker import Worker

LEASE, RECLAIM, POLL, GRACE = 6.0, 2.0, 1.0, 2.0
"""The proportions of the defaults, with shorter times."""


@dataclass(slots=True)
class RunningWorker:
    process: VirtualProcess
    worker: Worker
    network: Network


@dataclass
class Fleet:
    loop: VirtualLoop
    monitor: StoreMonitor
    conditions: NetworkConditions
    outcome_log: OutcomeLog
    handlers: Handlers
    trace: Trace
    chance: random.Random
    wrong_clocks: bool
    signals: Signals = field(default_factory=Signals)
    running: dict[str, RunningWorker] = field(default_factory=dict)
    disturbed: float = 0.0  # when the last storm or pause ended, or will end
    died: float = 0.0  # when the last worker died, or the first one came back
    started: int = 0
    closing: bool = False

    def start(self, *, knows_rare: bool = True) -> None:
        if self.closing:
            return
        if not self.running:
            self.died = self.loop.time()  # no worker was running
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
        self.running[name] = RunningWorker(process, worker, network)
        process.on_kill(lambda: self._died(name))
        self.trace.add(name, f"started{'' if knows_rare else ' without the rare task'}, clock {skew:+.0f} s")

    def network(self, name: str) -> Network:
        return Network(self.loop, self.monitor, self.conditions, name, self.chance.getrandbits(32))

    def pause(self, process: VirtualProcess, seconds: float) -> None:
        self.trace.add(process.name, f"paused for {seconds:.1f} s")
        self.outcome_log.paused_at[process.name] = self.loop.time() + seconds
        self.disturbed = max(self.disturbed, self.loop.time() + seconds)
        process.pause(seconds)

    def stop(self, name: str) -> None:
        running = self.running[name]

        def terminate() -> None:
            self.trace.add(name, "SIGTERM")
            self.outcome_log.last_number[name] = running.network.last_number
            self.outcome_log.terminated.setdefault(name, self.loop.time())
            running.worker.stop()

        self.loop.signal(running.process, terminate)

    def holds(self, name: str, job: Job) -> bool:
        """Returns whether a living worker holds exactly this claim."""
        running = self.running.get(name)
        if running is None or running.worker._runtime is None:
            return False
        attempt = running.worker._runtime._in_flight.held.get(job.id)
        return attempt is not None and (attempt.job.fence, attempt.job.claim) == (job.fence, job.claim)

    def kill_all(self) -> None:
        self.closing = True
        for running in list(self.running.values()):
            running.process.kill()

    async def _run(self, name: str, worker: Worker) -> None:
        await worker.run()
        self.trace.add(name, "returned")
        self._replace(name)
        if max(self.disturbed, self.died) < self.loop.time() - 2 * GRACE and not self.conditions.bad:
            self.outcome_log.drained[name] = self.loop.time() - self.outcome_log.terminated[name]

    def _died(self, name: str) -> None:
        self.trace.add(name, "died")
        self.died = self.loop.time()
        self._replace(name)

    def _replace(self, name: str) -> None:
        """Starts another worker with a new id some time after one has ended, like a supervisor."""
        self.running.pop(name, None)
        delay, knows_rare = self.chance.uniform(0.2, 1.5 * LEASE), self.chance.random() < 0.7
        self.loop.call_later(
            delay, lambda: self.start(knows_rare=knows_rare), context=context_for_process(None)
        )


def _options(name: str, chance: random.Random) -> WorkerOptions:
    return WorkerOptions(
        id=UniqueWorkerId(name),
        queues={queue: chance.choice((1, 1, 3)) for queue in QUEUES},
        strict=chance.random() < 0.2,
        concurrency=chance.choice((2, 4, 8)),
        lease=LEASE,
        reclaim_every=RECLAIM,
        prune_every=5.0,
        lead_every=2.0,
        grace=GRACE,
        poll=POLL,
        heartbeat_thread=False,
    )
