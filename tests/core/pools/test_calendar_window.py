"""A calendar's counter when the wall clock is set, asked as a claim asks it: through `reserve` and `wait`."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.calendars import Day, period_at
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings, PoolState
from tidemill.core.reserving import Ask, Granted, Refused, reserve
from tidemill.core.windows import Guards, Instant
from tidemill.core.windows.calendar import CalendarCount

GUARDS = Guards(jitter=0.5, midnight=5.0)
HOUR, DAY = 3600.0, 86_400.0
NOON = 1_767_268_800.0
"""2026-01-01 12:00 UTC."""
AMOUNT = 12
LIMIT = Limit.requests(AMOUNT, per=Day("UTC"))
POOL = PoolSettings(limits=(LIMIT,), guards=GUARDS)

# Seconds to go on, or where to stop beside the next turn of the shown wall or of the one that was never set.
moves = (
    st.sampled_from([0.0, 60.0, HOUR, 4 * HOUR, 12 * HOUR, 20 * HOUR])
    | st.tuples(st.just("shown"), st.sampled_from([-5.6, -5.4, -4.9, 0.0, 4.9, 5.1]))
    | st.tuples(st.just("unset"), st.sampled_from([-5.6, -5.4, -4.9, 0.0, 4.9, 5.1]))
)
steps = st.lists(
    st.tuples(
        moves,
        st.sampled_from([0.0, 0.0, 0.0, HOUR, -HOUR, 14 * HOUR, -14 * HOUR, 30 * HOUR, -30 * HOUR]),  # set by
        st.sampled_from([1, 5, 12]),
        st.sampled_from([0.0, GUARDS.jitter]),
    ),
    min_size=1,
    max_size=25,
)


class Clocks:
    """The boot clock, the wall as it is shown and the wall as nobody ever set it."""

    def __init__(self) -> None:
        self.boot = 1000.0
        self.shift = 0.0

    @property
    def now(self) -> Instant:
        return Instant(self.unset + self.shift, self.boot)

    @property
    def unset(self) -> float:
        return NOON + self.boot - 1000.0

    def go_on(self, move: float | tuple[str, float]) -> None:
        if isinstance(move, float):
            self.boot += move
            return
        wall = self.now.wall if move[0] == "shown" else self.unset
        self.boot += max(0.0, period_at(Day("UTC"), wall).end + move[1] - wall)


@given(steps, st.sampled_from([-5.0, 0.0, 5.0]))
@settings(max_examples=300, deadline=None)
def test_i26_no_day_is_used_twice_when_the_wall_is_set(
    asked: list[tuple[float | tuple[str, float], float, int, float]], skew: float
) -> None:
    """The provider's clock was never set, and is up to five seconds from ours. If the wall that was set is
    the right one, what is taken after that keeps its days too."""
    clocks, state = Clocks(), PoolState()
    by_provider: Counter[float] = Counter()
    by_shown: Counter[float] = Counter()
    for move, set_by, units, jitter in asked:
        clocks.go_on(move)
        if set_by and state.windows:
            clocks.shift += set_by
            by_shown.clear()
        answer = reserve(POOL, state, Ask("job", {"requests": units}, 5), clocks.now)
        state = answer.state
        if isinstance(answer, Granted):
            by_provider[period_at(Day("UTC"), clocks.unset + jitter + skew).start] += units
            by_shown[period_at(Day("UTC"), clocks.now.wall + jitter + skew).start] += units
    assert max(by_provider.values(), default=0) <= AMOUNT
    assert max(by_shown.values(), default=0) <= AMOUNT


@given(steps, st.sampled_from([1.0, 5.0, 12.0]))
@settings(max_examples=300, deadline=None)
def test_a_calendars_wait_is_never_too_long_when_the_wall_is_set(
    asked: list[tuple[float | tuple[str, float], float, int, float]], units: float
) -> None:
    """It is above 0 where the room is too small, the units do not fit before it is over, and after a few such
    waits they do."""
    clocks, window = Clocks(), CalendarCount()
    for move, set_by, taken, _ in asked:
        clocks.go_on(move)
        clocks.shift += set_by if window.used else 0.0
        if taken <= window.room(LIMIT, clocks.now, GUARDS):
            window, _ = window.taken(LIMIT, taken, clocks.now, GUARDS)
    now = clocks.now
    for _ in range(4):
        wait = window.wait(LIMIT, units, now, GUARDS)
        assert (wait > 0) == (window.room(LIMIT, now, GUARDS) < units)
        if wait == 0:
            return
        assert window.room(LIMIT, _later(now, wait - 1e-3), GUARDS) < units
        now = _later(now, wait + 1e-3)
    pytest.fail("four waits were not enough")


def test_i26_between_the_turns_of_both_walls_nothing_is_taken() -> None:
    begun = reserve(POOL, PoolState(), Ask("first", {"requests": 1}, 5), Instant(NOON, 1000.0))
    answer = reserve(POOL, begun.state, Ask("next", {"requests": 1}, 5), Instant(NOON + 14 * HOUR, 1000.0))
    assert isinstance(answer, Refused)
    assert answer.wait == pytest.approx(12 * HOUR + 5), "until the day is over by the wall that was never set"


def test_nothing_is_taken_that_may_arrive_on_the_next_day() -> None:
    """The guard before midnight is for a provider whose clock is ahead and a call that takes its jitter."""
    end = period_at(Day("UTC"), NOON).end
    for before, free in ((5.6, AMOUNT), (5.4, 0)):
        now = Instant(end - before, 1000.0)
        assert CalendarCount().room(LIMIT, now, GUARDS) == free
        assert (CalendarCount().wait(LIMIT, 1, now, GUARDS) == 0) == bool(free)


def _later(now: Instant, seconds: float) -> Instant:
    return Instant(now.wall + seconds, now.boot + seconds)
