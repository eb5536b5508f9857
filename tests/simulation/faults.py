"""What goes wrong, and when. Drawn before the history starts, so that it can be read in its trace."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from tests.simulation.fleet import LEASE, Fleet
from tidemill.testing.virtual import VirtualClock
from tidemill.testing.virtual_processes import Process

HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Profile:
    """Which faults a history has, each as a number per hundred seconds."""

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
    producers: list[Process] = field(default_factory=list)
    highest_step: float = 0.0
    _step: float = 0.0
    happened: list[str] = field(default_factory=list)

    async def run(self, seconds: float) -> None:
        """One timeline per kind of fault, side by side."""
        self.fleet.weather.lost_wakeup = self.profile.lost_wakeups
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

    async def calm_down(self) -> None:
        """The wall clock goes to the highest it has been: what was set for then comes due soon."""
        self.fleet.weather.clear()
        self._move_clock(self.highest_step - self._step)

    async def _at(self, when: float, fault: object) -> None:
        await asyncio.sleep(when)
        self.happened.append(fault.__name__)  # type: ignore[attr-defined]
        await fault()  # type: ignore[operator]

    async def _kill(self) -> None:
        """Between any two awaits: so many steps after now, whether they take time or not."""
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
        weather, chance = self.fleet.weather, self.chance
        self.fleet.trace.add("network", "a storm begins")
        weather.slow, weather.doubled = chance.choice((0.0, 0.5)), chance.choice((0.0, 0.2))
        weather.lost_request, weather.lost_reply = (
            chance.choice((0.0, 0.3, 1.0)),
            chance.choice((0.0, 0.4, 0.4)),
        )
        await asyncio.sleep(chance.uniform(0.5, 1.5 * LEASE))
        self.fleet.trace.add("network", "the storm is over")
        self.fleet.disturbed = max(self.fleet.disturbed, self.fleet.loop.time())
        weather.clear()

    async def _step_clock(self) -> None:
        self._move_clock(self.chance.choice((-DAY, -HOUR, HOUR, DAY)))

    def _move_clock(self, seconds: float) -> None:
        self._step += seconds
        self.highest_step = max(self.highest_step, self._step)
        self.clock.step_wall(seconds)
        self.fleet.trace.add("clock", f"stepped by {seconds:+.0f} s")

    def _victim(self) -> Process | None:
        """Mostly a worker, sometimes a producer in the middle of sending."""
        workers = [running.process for running in self.fleet.running.values()]
        processes = self.producers if self.producers and self.chance.random() < 0.15 else workers
        awake = [process for process in processes if process.alive and not process.paused]
        return self.chance.choice(awake) if awake else None
