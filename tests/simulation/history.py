"""One history: build the world from a seed, let it run, let it come to rest, and judge it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.faults import PROFILES, Profile
from tests.simulation.trace import Trace, Violation
from tests.simulation.voices import listen
from tests.simulation.world import World
from tidemill.testing.virtual import VirtualDeadlock, VirtualLoop, VirtualStandstill

REST = 300.0
"""Virtual seconds in which everything has come to an end after the last fault."""


@dataclass
class Verdict:
    """What became of a seed. `seen` counts what happened in it."""

    seed: int
    profile: str
    violation: Violation | None
    trace: Trace
    seen: Counter[str] = field(default_factory=Counter)


def run_history(seed: int, profile: Profile | None = None) -> Verdict:
    chance = random.Random(seed)
    chosen = profile or chance.choice(PROFILES)
    loop = VirtualLoop(seed=seed)
    world = World(loop, chance, chosen)
    listen(world.fleet.signals, world.heard)
    try:
        loop.set_exception_handler(world.unhandled)
        loop.run_until_complete(_live(world))
    except (VirtualDeadlock, VirtualStandstill) as error:
        world.violated(Violation("time", str(error)))
    finally:
        loop.set_exception_handler(lambda _loop, _context: None)  # the dead may say what they like
        loop.close()
    return Verdict(seed, chosen.name, world.violation, world.trace, world.seen())


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
    await world.come_to_rest(REST)
    world.judge()
