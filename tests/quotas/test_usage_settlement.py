"""The estimate of a call, its actual usage, and the effect on the next call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.quotas.fleet import Fleet, MakeStore, run_fleet
from tidemill import Context, Limit, Tidemill
from tidemill.core.limits import ShapeName

MINUTE = 60.0


def _sends(actual: int, make: MakeStore, shape: ShapeName) -> list[float]:
    """Returns the times of three calls with an estimate of 2 000 tokens, in a pool of 3 000 a minute."""

    async def scenario() -> list[float]:
        times: list[float] = []

        def write(app: Tidemill) -> Any:
            pool = app.pool("api", Limit.tokens(3_000, per="minute", shape=shape))

            @app.task(name="ask", pool=pool, cost={"tokens": 2_000})
            async def ask(ctx: Context, number: int) -> None:
                times.append(asyncio.get_running_loop().time())
                await asyncio.sleep(1)
                ctx.used(tokens=actual if number == 0 else 2_000)

            return ask

        fleet = Fleet(write, make, seed=1)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(3))
            fleet.start(2)
            await fleet.drained(within=10 * MINUTE)
        return times

    return run_fleet(scenario())


@pytest.mark.parametrize("shape", ["rolling", "bucket"])
def test_unused_units_are_free_at_the_next_claim(shape: ShapeName, make: MakeStore) -> None:
    """ "Estimate 2 000, actual 700 → the rest is free at the next claim." """
    times = _sends(700, make, shape)
    assert times[1] - times[0] < 1.1, "the first took a second, and left 2 300 of 3 000"
    assert times[2] - times[1] > 20


@pytest.mark.parametrize(("shape", "least"), [("rolling", 60.0), ("bucket", 80.0)])
def test_a_debt_delays_the_next(shape: ShapeName, least: float, make: MakeStore) -> None:
    """ "Actual 5 000 → debt delays." A bucket has to refill 4 000; a window has to pass."""
    times = _sends(5_000, make, shape)
    assert least <= times[1] - times[0] <= least + 2.5
