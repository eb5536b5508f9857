"""The complete state of one history."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from tests.simulation.claim_history import ClaimHistory
from tests.simulation.faults import Faults, Profile
from tests.simulation.fleet import GRACE, LEASE, POLL, RECLAIM, Fleet
from tests.simulation.handlers import Handlers
from tests.simulation.invariants.accepted_jobs import (
    Conservation,
    Once,
    OnlySubmitted,
    check_all_ended,
    check_done_was_run,
    check_nothing_lost,
)
from tests.simulation.invariants.claims import (
    Crashes,
    Drains,
    Fences,
    Leases,
    StaleWrites,
    check_alone,
    check_drains_end,
    check_handed_back,
    check_logs,
)
from tests.simulation.invariants.deadlines import Clocks, Times, check_deadline, check_started_in_time
from tests.simulation.invariants.limits import ClosedPools, Limits
from tests.simulation.invariants.state_transitions import Cancels, LegalMoves, OnlyOpen, check_starts
from tests.simulation.invariants.unique_keys import UniqueKeys
from tests.simulation.minimal_worker import MinimalWorker
from tests.simulation.network import MAX_ARRIVAL_SECONDS, NetworkConditions
from tests.simulation.operators import Operator
from tests.simulation.outcome_log import OutcomeLog
from tests.simulation.provider import POOLS, Provider
from tests.simulation.store_monitor import StoreMonitor
from tests.simulation.trace import Trace, Violation
from tests.simulation.workload import ExternalProducer, Producer, Requests, queue_settings
from tidemill.core.queues import QueueSettings
from tidemill.core.states import FINAL, State
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.virtual_loop import VirtualLoop
from tidemill.testing.virtual_processes import VirtualProcess

SLACK = 0.5
"""Seconds for several consecutive messages on a quiet network."""


class World:
    def __init__(self, loop: VirtualLoop, chance: random.Random, profile: Profile) -> None:
        self.loop, self.chance, self.profile = loop, chance, profile
        self.duration = chance.uniform(15, 45)
        self.clock = VirtualClock(loop)
        self.trace = Trace(loop.time)
        self.trace.add("world", f"profile {profile.name!r}, {self.duration:.0f} s of faults")
        self.outcome_log = OutcomeLog(loop.time)
        self.store = MemoryStore(clock=self.clock, entropy=SeededEntropy(chance.getrandbits(32)))
        self.monitor = StoreMonitor(self.store, self.clock, self.trace, self.violated)
        self.provider = Provider(self.clock, random.Random(chance.getrandbits(32)), self.violated)
        self.fleet = Fleet(
            loop,
            self.monitor,
            NetworkConditions(),
            self.outcome_log,
            Handlers(self.outcome_log, self.provider),
            self.trace,
            random.Random(chance.getrandbits(32)),
            profile.wrong_clocks,
        )
        self.faults = Faults(self.fleet, self.clock, profile, random.Random(chance.getrandbits(32)))
        self.requests = Requests(random.Random(chance.getrandbits(32)), quiet=profile.quiet)
        self.producers: list[tuple[VirtualProcess, asyncio.Task[None]]] = []
        self.guests: list[VirtualProcess] = []
        self.broken = asyncio.Event()
        self.violation: Violation | None = None
        self._watch_everything()

    def _watch_everything(self) -> None:
        self.claim_history = claim_history = ClaimHistory()
        self._conservation = Conservation(claim_history)
        self.monitor.checkers = [
            LegalMoves(),
            Fences(),
            StaleWrites(claim_history),
            Leases(claim_history, RECLAIM + 1 + SLACK, self._calm_since, self.fleet.holds),
            Crashes(claim_history),
            Times(),
            UniqueKeys(),
            Limits(self._settings, self._counts, self._running_in),
            OnlyOpen(lambda queue: self.store._shared.records.queue(queue).pause),
            Cancels(),
            ClosedPools(claim_history),
            Drains(self.outcome_log, claim_history),
            Clocks(),
            OnlySubmitted(self.outcome_log),
            Once(claim_history),
            self._conservation,
            claim_history,
        ]

    async def begin(self) -> None:
        declared = queue_settings(self.chance)
        await self.store.declare(declared)
        await self.store.declare_pools(POOLS)
        for _ in range(self.chance.choice((2, 3))):
            self.fleet.start(knows_rare=self.chance.random() < 0.7)
        for number in range(2):
            self._start_producer(f"p{number + 1}")
        if self.profile.storms:
            self._invite_stranger()
        if not self.profile.quiet:
            foreigner = ExternalProducer(
                self.store, self.outcome_log, self.trace, random.Random(self.chance.getrandbits(32))
            )
            self.guests.append(self.loop.spawn("foreigner", foreigner.run())[0])
        if self.profile.operators:
            self.guests.append(self.loop.spawn("operator", self._operator().run())[0])

    async def wait_until_idle(self, patience: float) -> None:
        """Waits until all jobs have ended. Faults have stopped, and the workers know every task."""
        self.provider.moody = False
        await self.faults.stop_faults()
        await asyncio.sleep(MAX_ARRIVAL_SECONDS)
        for guest in self.guests:
            guest.kill()
        await self._operator().restore_settings()
        for _ in range(2):
            self.fleet.start()
        until = self.loop.time() + patience
        while self.loop.time() < until and not self._at_rest():  # noqa: ASYNC110 - virtual seconds are free
            await asyncio.sleep(1)

    def judge(self) -> None:
        jobs = self.monitor.jobs()
        check_nothing_lost(self.outcome_log, self.claim_history, jobs)
        check_all_ended(jobs, len(self.store._shared.records.arrivals))
        check_done_was_run(self.outcome_log, self.claim_history, jobs)
        for id_ in jobs:
            check_logs(self.claim_history, id_, self._logs(id_))
        check_alone(self.outcome_log, self.claim_history)
        self._conservation.check_counts(self._counts())
        check_starts(self.outcome_log, self.claim_history)
        check_handed_back(self.outcome_log, self.claim_history)
        check_drains_end(self.outcome_log, GRACE + SLACK)
        check_deadline(self.outcome_log)
        if self.profile.quiet:
            check_started_in_time(self.claim_history, jobs, self.loop.epoch, POLL + SLACK)

    def kill_everybody(self) -> None:
        self.fleet.kill_all()
        for guest in self.guests:
            guest.kill()
        for process, _ in self.producers:
            process.kill()

    def violated(self, violation: Violation) -> None:
        """Records the first violation; later ones are its consequences."""
        if self.violation is None:
            self.violation = violation
            self.trace.add("VIOLATION", str(violation))
            self.broken.set()

    def heard(self, traceback: str) -> None:
        self.violated(Violation("bug", f"an exception was logged:\n{traceback}"))

    def unhandled(self, _loop: object, context: dict[str, Any]) -> None:
        if self.violation is None:
            self.violated(Violation("bug", f"{context.get('message')}: {context.get('exception')!r}"))

    def seen(self) -> Counter[str]:
        seen = Counter(self.claim_history.seen)
        seen.update(self.faults.happened)
        seen["verbs"] = self.monitor.verbs
        seen.update({f"provider: {word}": times for word, times in self.provider.answers.items()})
        seen["jobs"] = len(self.outcome_log.sent)
        seen["accepted"] = len(self.outcome_log.accepted)
        seen["drained"] = len(self.outcome_log.drained)
        ends = [job for _, job in self.claim_history.deleted.values()] + list(self.monitor.jobs().values())
        seen.update(f"{job.state} {job.reason or ''}".strip() for job in ends)
        return seen

    def _start_producer(self, name: str) -> None:
        chance = random.Random(self.chance.getrandbits(32))
        producer = Producer(self.fleet.network(name), self.outcome_log, self.trace, name, chance)
        jobs = chance.choice((5, 15))
        self.producers.append(self.loop.spawn(name, producer.run(self.requests.draw, jobs, self.duration)))
        self.faults.producers.append(self.producers[-1][0])

    def _invite_stranger(self) -> None:
        chance = random.Random(self.chance.getrandbits(32))
        stranger = MinimalWorker("s1", self.fleet.network("s1"), self.fleet.handlers, chance, LEASE)
        self.guests.append(self.loop.spawn("s1", stranger.run())[0])

    def _operator(self) -> Operator:
        chance = random.Random(self.chance.getrandbits(32))
        return Operator(self.fleet.network("operator"), self.outcome_log, self.trace, chance, self.clock.wall)

    def _at_rest(self) -> bool:
        sending = any(process.alive and not task.done() for process, task in self.producers)
        waiting = sending or bool(self.store._shared.records.arrivals)
        return not waiting and all(job.state in FINAL for job in self.monitor.jobs().values())

    def _calm_since(self) -> float | None:
        """Returns since when a worker could reclaim undisturbed.

        After a pause or a storm, a reclaimer distrusts the clocks for a lease. After a death,
        maintenance has no leader for a while."""
        if self.fleet.conditions.bad or not self.fleet.running:
            return None
        return max(self.fleet.disturbed + LEASE + 3 * RECLAIM, self.fleet.died + 1.5 * RECLAIM)

    def _settings(self, queue: str) -> QueueSettings:
        return self.store._shared.records.queue(queue).settings

    def _counts(self) -> dict[str, dict[State, int]]:
        return {name: dict(queue.counts.items()) for name, queue in self.store._shared.records.queues.items()}

    def _running_in(self) -> dict[tuple[str, str], int]:
        queues = self.store._shared.records.queues
        return {(name, lane): n for name, queue in queues.items() for lane, n in queue.running_in.items()}

    def _logs(self, job: str) -> set[str]:
        attempts = self.store._shared.records.logs.get(job, {})
        return {line.line for lines in attempts.values() for line in lines}
