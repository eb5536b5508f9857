"""Everything that exists in one history."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from tests.simulation.facts import Facts
from tests.simulation.faults import Faults, Profile
from tests.simulation.fleet import GRACE, LEASE, POLL, RECLAIM, Fleet
from tests.simulation.foreigner import Foreigner
from tests.simulation.handlers import Handlers
from tests.simulation.invariants.i01_nothing_lost import (
    check_all_ended,
    check_done_was_run,
    check_nothing_lost,
)
from tests.simulation.invariants.i02_only_submitted import OnlySubmitted
from tests.simulation.invariants.i03_once import Once
from tests.simulation.invariants.i04_legal_moves import LegalMoves
from tests.simulation.invariants.i05_fences import Fences
from tests.simulation.invariants.i06_stale_writes import StaleWrites, check_logs
from tests.simulation.invariants.i07_leases import Leases
from tests.simulation.invariants.i08_crashes import Crashes, check_alone
from tests.simulation.invariants.i09_conservation import Conservation
from tests.simulation.invariants.i10_times import Times
from tests.simulation.invariants.i11_unique import UniqueKeys
from tests.simulation.invariants.i13_limits import Limits
from tests.simulation.invariants.i15_closed_pools import ClosedPools
from tests.simulation.invariants.i19_cancel import Cancels, check_starts
from tests.simulation.invariants.i20_drain import Drains, check_drains_end, check_handed_back
from tests.simulation.invariants.i22_deadline import check_deadline
from tests.simulation.invariants.i23_wakeups import check_started_in_time
from tests.simulation.invariants.i26_clocks import Clocks
from tests.simulation.invariants.j34_j36_open import OnlyOpen
from tests.simulation.ledger import Ledger
from tests.simulation.network import LATEST, Weather
from tests.simulation.operators import Operator
from tests.simulation.provider import POOLS, Provider
from tests.simulation.stranger import Stranger
from tests.simulation.trace import Trace, Violation
from tests.simulation.watch import Watch
from tests.simulation.workload import Producer, Requests, queue_settings
from tidemill.core.queues import QueueSettings
from tidemill.core.states import FINAL, State
from tidemill.stores.memory import MemoryStore
from tidemill.testing.manual import SeededEntropy
from tidemill.testing.virtual import VirtualClock, VirtualLoop
from tidemill.testing.virtual_processes import Process

SLACK = 0.5
"""For the messages of a quiet network, several of them in a row."""


class World:
    def __init__(self, loop: VirtualLoop, chance: random.Random, profile: Profile) -> None:
        self.loop, self.chance, self.profile = loop, chance, profile
        self.duration = chance.uniform(15, 45)
        self.clock = VirtualClock(loop)
        self.trace = Trace(loop.time)
        self.trace.add("world", f"profile {profile.name!r}, {self.duration:.0f} s of faults")
        self.ledger = Ledger(loop.time)
        self.store = MemoryStore(clock=self.clock, entropy=SeededEntropy(chance.getrandbits(32)))
        self.watch = Watch(self.store, self.clock, self.trace, self.violated)
        self.provider = Provider(self.clock, random.Random(chance.getrandbits(32)), self.violated)
        self.fleet = Fleet(
            loop,
            self.watch,
            Weather(),
            self.ledger,
            Handlers(self.ledger, self.provider),
            self.trace,
            random.Random(chance.getrandbits(32)),
            profile.wrong_clocks,
        )
        self.faults = Faults(self.fleet, self.clock, profile, random.Random(chance.getrandbits(32)))
        self.requests = Requests(random.Random(chance.getrandbits(32)), quiet=profile.quiet)
        self.producers: list[tuple[Process, asyncio.Task[None]]] = []
        self.guests: list[Process] = []
        self.broken = asyncio.Event()
        self.violation: Violation | None = None
        self._watch_everything()

    def _watch_everything(self) -> None:
        self.facts = facts = Facts()
        self._conservation = Conservation(facts)
        self.watch.checkers = [
            LegalMoves(),
            Fences(),
            StaleWrites(facts),
            Leases(facts, RECLAIM + 1 + SLACK, self._calm_since, self.fleet.holds),
            Crashes(facts),
            Times(),
            UniqueKeys(),
            Limits(self._settings, self._counts, self._running_in),
            OnlyOpen(lambda queue: self.store._shared.records.queue(queue).pause),
            Cancels(),
            ClosedPools(facts),
            Drains(self.ledger, facts),
            Clocks(),
            OnlySubmitted(self.ledger),
            Once(facts),
            self._conservation,
            facts,
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
            foreigner = Foreigner(
                self.store, self.ledger, self.trace, random.Random(self.chance.getrandbits(32))
            )
            self.guests.append(self.loop.spawn("foreigner", foreigner.run())[0])
        if self.profile.operators:
            self.guests.append(self.loop.spawn("operator", self._operator().run())[0])

    async def come_to_rest(self, patience: float) -> None:
        """Faults have stopped. Workers that know everything finish what is left."""
        self.provider.moody = False
        await self.faults.calm_down()
        await asyncio.sleep(LATEST)
        for guest in self.guests:
            guest.kill()
        await self._operator().tidy_up()
        for _ in range(2):
            self.fleet.start()
        until = self.loop.time() + patience
        while self.loop.time() < until and not self._at_rest():  # noqa: ASYNC110 - virtual seconds are free
            await asyncio.sleep(1)

    def judge(self) -> None:
        jobs = self.watch.jobs()
        check_nothing_lost(self.ledger, self.facts, jobs)
        check_all_ended(jobs, len(self.store._shared.records.arrivals))
        check_done_was_run(self.ledger, self.facts, jobs)
        for id_ in jobs:
            check_logs(self.facts, id_, self._logs(id_))
        check_alone(self.ledger, self.facts)
        self._conservation.check_counts(self._counts())
        check_starts(self.ledger, self.facts)
        check_handed_back(self.ledger, self.facts)
        check_drains_end(self.ledger, GRACE + SLACK)
        check_deadline(self.ledger)
        if self.profile.quiet:
            check_started_in_time(self.facts, jobs, self.loop.epoch, POLL + SLACK)

    def kill_everybody(self) -> None:
        self.fleet.kill_all()
        for guest in self.guests:
            guest.kill()
        for process, _ in self.producers:
            process.kill()

    def violated(self, violation: Violation) -> None:
        """The first one counts; what follows is its consequence."""
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
        seen = Counter(self.facts.seen)
        seen.update(self.faults.happened)
        seen["verbs"] = self.watch.verbs
        seen.update({f"provider: {word}": times for word, times in self.provider.answers.items()})
        seen["jobs"] = len(self.ledger.sent)
        seen["accepted"] = len(self.ledger.accepted)
        seen["drained"] = len(self.ledger.drained)
        ends = [job for _, job in self.facts.deleted.values()] + list(self.watch.jobs().values())
        seen.update(f"{job.state} {job.reason or ''}".strip() for job in ends)
        return seen

    def _start_producer(self, name: str) -> None:
        chance = random.Random(self.chance.getrandbits(32))
        producer = Producer(self.fleet.network(name), self.ledger, self.trace, name, chance)
        jobs = chance.choice((5, 15))
        self.producers.append(self.loop.spawn(name, producer.run(self.requests.draw, jobs, self.duration)))
        self.faults.producers.append(self.producers[-1][0])

    def _invite_stranger(self) -> None:
        chance = random.Random(self.chance.getrandbits(32))
        stranger = Stranger("s1", self.fleet.network("s1"), self.fleet.handlers, chance, LEASE)
        self.guests.append(self.loop.spawn("s1", stranger.run())[0])

    def _operator(self) -> Operator:
        chance = random.Random(self.chance.getrandbits(32))
        return Operator(self.fleet.network("operator"), self.ledger, self.trace, chance, self.clock.wall)

    def _at_rest(self) -> bool:
        sending = any(process.alive and not task.done() for process, task in self.producers)
        waiting = sending or bool(self.store._shared.records.arrivals)
        return not waiting and all(job.state in FINAL for job in self.watch.jobs().values())

    def _calm_since(self) -> float | None:
        """Since when some worker could reclaim undisturbed: a pause or a storm makes a reclaimer
        distrust the clocks for a lease, a death leaves the chore without a leader for a while."""
        if self.fleet.weather.bad or not self.fleet.running:
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
