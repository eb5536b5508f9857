"""One history: builds the world from a seed, runs it until it is idle, and checks the invariants."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.faults import PROFILES, Profile
from tests.simulation.trace import Trace, Violation, report_worker_errors
from tests.simulation.world import World
from tidemill.testing.virtual_loop import VirtualDeadlock, VirtualLoop, VirtualStandstill

REST_SECONDS = 300.0
"""Virtual seconds after the last fault within which all jobs must have ended."""


@dataclass
class SimulationResult:
    """The result of a seed. `seen` counts its events."""

    seed: int
    profile: str
    violation: Violation | None
    trace: Trace
    seen: Counter[str] = field(default_factory=Counter)


def run_history(seed: int, profile: Profile | None = None) -> SimulationResult:
    chance = random.Random(seed)
    chosen = profile or chance.choice(PROFILES)
    loop = VirtualLoop(seed=seed)
    world = World(loop, chance, chosen)
    report_worker_errors(world.fleet.signals, world.heard)
    try:
        loop.set_exception_handler(world.unhandled)
        loop.run_until_complete(_live(world))
    except (VirtualDeadlock, VirtualStandstill) as error:
        world.violated(Violation("time", str(error)))
    finally:
        loop.set_exception_handler(lambda _loop, _context: None)  # errors of killed processes are ignored
        loop.close()
    return SimulationResult(seed, chosen.name, world.violation, world.trace, world.seen())


async def _live(world: World) -> None:
    life = asyncio.create_task(_all_phases(world))
    broken = asyncio.create_task(world.broken.wait())
    await asyncio.wait([life, broken], return_when=asyncio.FIRST_COMPLETED)
    world.kill_everybody()
    if life.done():
        try:
            life.result()
        except Violation as violation:
            world.violated(violation)


async def _all_phases(world: World) -> None:
    await world.begin()
    await world.faults.run(world.duration)
    await world.wait_until_idle(REST_SECONDS)
    world.judge()
