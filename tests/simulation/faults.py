"""The faults of a history and their times. They are drawn before the history starts, so that its trace
lists them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from tests.simulation.fleet import LEASE, Fleet
from tidemill.testing.clocks import VirtualClock
from tidemill.testing.virtual_processes import VirtualProcess

HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Profile:
    """The faults of a history, each as a number per hundred seconds."""

    name: str
    kills: float = 0.0
    pauses: float = 0.0
    drains: float = 0.0
    storms: float = 0.0
    clock_steps: float = 0.0
    wrong_clocks: bool = False
    lost_wakeups: float = 0.0
    operators: bool = False
    quiet: bool = False


PROFILES = (
    Profile("everything", 4, 3, 2, 4, 2, wrong_clocks=True, lost_wakeups=0.2, operators=True),
    Profile("everything", 4, 3, 2, 4, 2, wrong_clocks=True, lost_wakeups=0.2, operators=True),
    Profile("kills", kills=8, drains=2, operators=True),
    Profile("pauses", pauses=8),
    Profile("network", storms=12, lost_wakeups=0.5),
    Profile("clocks", kills=2, clock_steps=6, wrong_clocks=True),
    Profile("drains", drains=8, storms=1),
    Profile("operators", kills=1, storms=3, lost_wakeups=0.5, operators=True),
    Profile("deaf", lost_wakeups=1.0, kills=2),
    Profile("quiet and deaf", lost_wakeups=1.0, quiet=True),
)


@dataclass
class Faults:
    fleet: Fleet
    clock: VirtualClock
    profile: Profile
    chance: random.Random
    producers: list[VirtualProcess] = field(default_factory=list)
    highest_step: float = 0.0
    _step: float = 0.0
    happened: list[str] = field(default_factory=list)

    async def run(self, seconds: float) -> None:
        """Runs one timeline per kind of fault, concurrently."""
        self.fleet.conditions.lost_wakeup = self.profile.lost_wakeups
        timelines = (
            (self.profile.kills, self._kill),
            (self.profile.pauses, self._pause),
            (self.profile.drains, self._drain),
            (self.profile.storms, self._storm),
            (self.profile.clock_steps, self._step_clock),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(seconds))
            for rate, fault in timelines:
                for _ in range(round(rate * seconds / 100 * self.chance.uniform(0.5, 1.5))):
                    group.create_task(self._at(self.chance.uniform(0, seconds), fault))

    async def stop_faults(self) -> None:
        """Stops all faults. The wall clock moves to its highest value so far, so that all due times come
        soon."""
        self.fleet.conditions.clear()
        self._move_clock(self.highest_step - self._step)

    async def _at(self, when: float, fault: object) -> None:
        await asyncio.sleep(when)
        self.happened.append(fault.__name__)  # type: ignore[attr-defined]
        await fault()  # type: ignore[operator]

    async def _kill(self) -> None:
        """Kills a process between two awaits, after a random number of steps. A step may take no time."""
        if (process := self._victim()) is not None:
            process.at_step(process.steps + self.chance.randrange(1, 40), process.kill)

    async def _pause(self) -> None:
        process, seconds = self._victim(), self.chance.choice((1.0, LEASE + 2, 3 * LEASE))
        if process is not None:
            step = process.steps + self.chance.randrange(1, 40)
            process.at_step(step, lambda: self.fleet.pause(process, seconds))

    async def _drain(self) -> None:
        names = list(self.fleet.running)
        if names:
            self.fleet.stop(self.chance.choice(names))

    async def _storm(self) -> None:
        conditions, chance = self.fleet.conditions, self.chance
        self.fleet.trace.add("network", "a storm begins")
        conditions.slow, conditions.doubled = chance.choice((0.0, 0.5)), chance.choice((0.0, 0.2))
        conditions.lost_request, conditions.lost_reply = (
            chance.choice((0.0, 0.3, 1.0)),
            chance.choice((0.0, 0.4, 0.4)),
        )
        await asyncio.sleep(chance.uniform(0.5, 1.5 * LEASE))
        self.fleet.trace.add("network", "the storm is over")
        self.fleet.disturbed = max(self.fleet.disturbed, self.fleet.loop.time())
        conditions.clear()

    async def _step_clock(self) -> None:
        self._move_clock(self.chance.choice((-DAY, -HOUR, HOUR, DAY)))

    def _move_clock(self, seconds: float) -> None:
        self._step += seconds
        self.highest_step = max(self.highest_step, self._step)
        self.clock.step_wall(seconds)
        self.fleet.trace.add("clock", f"stepped by {seconds:+.0f} s")

    def _victim(self) -> VirtualProcess | None:
        """Picks a process: mostly a worker, sometimes a producer while it sends."""
        workers = [running.process for running in self.fleet.running.values()]
        processes = self.producers if self.producers and self.chance.random() < 0.15 else workers
        awake = [process for process in processes if process.alive and not process.paused]
        return self.chance.choice(awake) if awake else None
