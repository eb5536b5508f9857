"""All slots of a small pool are used, and waiting workers do not poll it."""

from __future__ import annotations

import asyncio
import math
from typing import Any
from unittest import mock

from tests.quotas.fleet import Fleet, MakeStore, run_fleet
from tidemill import Limit, Tidemill
from tidemill.core import accounts

MINUTE = 60.0


class CallTimes:
    """Records the time of each call, by its argument."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.first: dict[Any, float] = {}

    def made(self, what: Any) -> None:
        now = asyncio.get_running_loop().time()
        self.times.append(now)
        self.first.setdefault(what, now)


def test_the_slots_of_a_small_pool_are_used(make: MakeStore) -> None:
    """Two calls a minute and four processes: at least 95 of 100 slots are used."""

    async def scenario() -> list[float]:
        calls = CallTimes()

        def write(app: Tidemill) -> Any:
            @app.task(name="ask", pool=app.pool("api", Limit.requests(2, per="minute")))
            async def ask(number: int) -> None:
                calls.made(number)
                await asyncio.sleep(3)

            return ask

        fleet = Fleet(write, make, seed=4)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(12))
            fleet.start(4)
            await fleet.drained(within=12 * MINUTE)
        return calls.times

    times = run_fleet(scenario())
    slots = 2 * (1 + times[-1] / MINUTE)
    assert len(times) == 12
    assert len(times) / slots >= 0.95


def test_many_lanes_behind_a_full_pool_are_left_alone(make: MakeStore) -> None:
    """Ten thousand lanes wait for one pool. Four processes ask at most five times per opening, and twice a
    second otherwise."""
    claims: list[float] = []
    real = accounts.request_units

    def counted(*given: Any) -> Any:
        claims.append(given[-1].boot)
        return real(*given)

    async def scenario() -> list[float]:
        calls = CallTimes()

        def write(app: Tidemill) -> Any:
            pool = app.pool("api", Limit.requests(1, per="minute"))

            @app.task(name="ask", pool=pool, key=lambda number: f"{number}")
            async def ask(number: int) -> None:
                calls.made(number)

            return ask

        fleet = Fleet(write, make, seed=4)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(10_000))
            fleet.start(4)
            await asyncio.sleep(2.5 * MINUTE)
        return calls.times

    with mock.patch.object(accounts, "request_units", counted):
        times = run_fleet(scenario())
    assert len(times) == 3
    for opening in times[1:]:
        assert sum(abs(at - opening) < 0.25 for at in claims) <= 5
    for second in range(1, 150):
        assert sum(second <= at < second + 1 and not _near(at, times) for at in claims) <= 2


def _near(at: float, openings: list[float]) -> bool:
    return any(abs(at - opening) < 0.25 for opening in openings)


def test_a_big_call_starts_among_endless_small_ones(make: MakeStore) -> None:
    """The call needs four fifths of the window, and starts within two windows.

    Small calls arrive slightly faster than the limit, in another queue. So enough units are free only if
    the pool holds them for the large call."""

    async def scenario() -> float:
        calls = CallTimes()

        def write(app: Tidemill) -> Any:
            pool = app.pool("api", Limit.tokens(250_000, per="minute"))

            @app.task(name="ask", pool=pool, cost=lambda tokens: {"tokens": tokens}, queue="small")
            async def ask(tokens: int) -> None:
                calls.made(tokens)
                await asyncio.sleep(1)

            return ask

        fleet = Fleet(write, make, seed=4)

        async def produce() -> None:
            while True:
                await fleet.app.enqueue_many([fleet.task.job(2_000)] * 5)
                await asyncio.sleep(2)

        async with fleet.app:
            fleet.start(4, queues={"small": 1, "big": 1})
            producing = asyncio.create_task(produce())
            await asyncio.sleep(2 * MINUTE)
            began = fleet.clock.boot()
            await fleet.task.using(queue="big").enqueue(200_000)
            await asyncio.sleep(2.5 * MINUTE)
            producing.cancel()
        return calls.first.get(200_000, math.inf) - began

    assert run_fleet(scenario()) <= 2 * MINUTE
