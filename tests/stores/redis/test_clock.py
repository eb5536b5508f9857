"""The server's clock is used, but its steps have no effect on leases (I26).

No test can step the clock of the machine. The scripts add a `skew` to TIME, and the tests change it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.stores.redis.conftest import Connect
from tidemill.stores.redis import clock as redis_clock
from tidemill.stores.redis.clock import RedisServerClock
from tidemill.stores.redis.handle import RedisHandle
from tidemill.testing.clocks import ManualClock

HOUR = 3600.0
Open = Callable[[], Awaitable[RedisHandle]]


class Skew:
    """How far the server's clock was stepped, for all handles."""

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


async def boot(handle: RedisHandle) -> float:
    return (await handle.shard.read_clock())[1]


async def test_an_injected_clock_is_used(connect: Connect) -> None:
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


async def test_i26_a_handle_opened_after_a_step_agrees_with_the_others(opened: Open, skew: Skew) -> None:
    one = await opened()
    before = await boot(one)
    skew.seconds += HOUR
    new = await opened()
    assert await boot(one) == pytest.approx(before, abs=1.0), (
        "it knew the clock before, so it notices the step"
    )
    assert await boot(new) == pytest.approx(before, abs=1.0), "its first expectation was wrong"


async def test_i26_a_suspended_machine_does_not_move_the_clock(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual machine that was suspended for an hour expects a boot time one hour too low.

    The other handles agree with the server, so the suspended one is wrong."""
    one, halted = await opened(), await opened()
    before = await boot(one)
    await boot(halted)
    assert isinstance(halted.clock, RedisServerClock)
    seen, at = halted.clock._seen or (0.0, 0.0)
    monkeypatch.setattr(halted.clock, "_seen", (seen - HOUR, at))
    assert await boot(halted) == pytest.approx(before, abs=1.0)
    assert await boot(one) == pytest.approx(before, abs=1.0)


async def test_small_differences_are_no_clock_step(opened: Open, skew: Skew) -> None:
    """Clocks drift, and NTP slews them."""
    handle = await opened()
    before = await boot(handle)
    skew.seconds += 4.0
    assert await boot(handle) == pytest.approx(before + 4.0, abs=1.0)


async def test_a_clock_without_sleep_time_sends_no_expectation(
    opened: Open, skew: Skew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A laptop without CLOCK_BOOTTIME must not take its sleep for a step of the server's clock."""
    handle = await opened()
    before = await boot(handle)
    monkeypatch.setattr(redis_clock, "_COUNTS_SLEEP", False)
    skew.seconds += HOUR
    assert await boot(handle) == pytest.approx(before + HOUR, abs=1.0)
