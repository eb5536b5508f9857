"""The server's clock is the truth, but its steps are not (I26).

No test can step the machine's clock: the scripts add a `skew` to what TIME says, and the tests change
that. What follows from a step is real, the step is not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.stores.redis.conftest import Connect
from tidemill.stores.redis import clocks
from tidemill.stores.redis.clocks import ServerClock
from tidemill.stores.redis.handle import Handle
from tidemill.testing.manual import ManualClock

HOUR = 3600.0
Open = Callable[[], Awaitable[Handle]]


class Skew:
    """By how much the server's clock was stepped, for everybody."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def skew() -> Skew:
    return Skew()


@pytest.fixture
def opened(connect: Connect, skew: Skew) -> Open:
    return lambda: connect(skew=skew)


async def boot(handle: Handle) -> float:
    return (await handle.shard.read_clock())[1]


async def test_a_given_clock_is_believed(connect: Connect) -> None:
    clock = ManualClock()
    handle = await connect(clock=clock)
    clock.advance(5.0)
    assert await handle.shard.read_clock() == (clock.wall(), clock.boot())


async def test_the_servers_clock_counts_seconds(opened: Open) -> None:
    handle = await opened()
    first = await handle.shard.read_clock()
    second = await handle.shard.read_clock()
    assert 0 <= second[0] - first[0] < 5
    assert second[1] - first[1] == pytest.approx(second[0] - first[0], abs=0.001)


@pytest.mark.parametrize("step", [HOUR, -HOUR, 24 * HOUR, -24 * HOUR])
async def test_i26_a_step_of_the_servers_clock_moves_no_lease(opened: Open, skew: Skew, step: float) -> None:
    one, other = await opened(), await opened()
    before, wall = await boot(one), (await other.shard.read_clock())[0]
    skew.seconds += step
    assert await boot(one) == pytest.approx(before, abs=1.0)
    assert await boot(other) == pytest.approx(before, abs=1.0)
    assert (await other.shard.read_clock())[0] == pytest.approx(wall + step, abs=1.0), "calendars follow"


async def test_i26_one_step_after_the_other(opened: Open, skew: Skew) -> None:
    one, other = await opened(), await opened()
    before = await boot(one)
    for step in (HOUR, -HOUR, HOUR, -2 * HOUR, 30.0, -30.0):
        skew.seconds += step
        assert await boot(other) == pytest.approx(before, abs=1.0), step
        assert await boot(one) == pytest.approx(before, abs=1.0), step


async def test_i26_who_comes_after_a_step_agrees_with_the_others(opened: Open, skew: Skew) -> None:
    one = await opened()
    before = await boot(one)
    skew.seconds += HOUR
    new = await opened()
    assert await boot(one) == pytest.approx(before, abs=1.0), "known before, so the step is seen"
    assert await boot(new) == pytest.approx(before, abs=1.0), "what it saw first was wrong"


async def test_i26_a_halted_machine_moves_nobodys_clock(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual machine that was stopped for an hour expects an hour too little. The others agree with
    the server, so it is the one that is wrong."""
    one, halted = await opened(), await opened()
    before = await boot(one)
    await boot(halted)
    assert isinstance(halted.clock, ServerClock)
    seen, at = halted.clock._seen or (0.0, 0.0)
    monkeypatch.setattr(halted.clock, "_seen", (seen - HOUR, at))
    assert await boot(halted) == pytest.approx(before, abs=1.0)
    assert await boot(one) == pytest.approx(before, abs=1.0)


async def test_small_differences_are_nobodys_step(opened: Open, skew: Skew) -> None:
    """Clocks part by themselves, and are slewed."""
    handle = await opened()
    before = await boot(handle)
    skew.seconds += 4.0
    assert await boot(handle) == pytest.approx(before + 4.0, abs=1.0)


async def test_a_clock_that_counts_no_sleep_expects_nothing(
    opened: Open, skew: Skew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A laptop without CLOCK_BOOTTIME must not take its own sleep for a step of the server's clock."""
    handle = await opened()
    before = await boot(handle)
    monkeypatch.setattr(clocks, "_COUNTS_SLEEP", False)
    skew.seconds += HOUR
    assert await boot(handle) == pytest.approx(before + HOUR, abs=1.0)
