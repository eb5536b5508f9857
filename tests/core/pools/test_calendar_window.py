"""A calendar window when the wall clock is set, tested as a claim uses it: through `reserve` and `wait`."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.calendars import Day, period_at
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings, PoolState
from tidemill.core.reservations import ReservationDenial, ReservationGrant, UnitRequest, reserve_units
from tidemill.core.windows import Guards, Instant
from tidemill.core.windows.calendar_window import CalendarWindow

GUARDS = Guards(jitter=0.5, midnight=5.0)
HOUR, DAY = 3600.0, 86_400.0
NOON = 1_767_268_800.0
"""2026-01-01 12:00 UTC."""
AMOUNT = 12
LIMIT = Limit.requests(AMOUNT, per=Day("UTC"))
POOL = PoolSettings(limits=(LIMIT,), guards=GUARDS)

# Seconds to advance, or a position relative to the next period of the shown wall clock or of the true one.
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
    """The boot clock, the wall clock as shown, and the wall clock as if it had never been set."""

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
def test_i26_no_day_is_used_twice_when_the_wall_clock_is_set(
    asked: list[tuple[float | tuple[str, float], float, int, float]], skew: float
) -> None:
    """The provider's clock was never set, and differs from ours by up to five seconds. If the new wall
    clock is the right one, the units taken afterwards keep its days too."""
    clocks, state = Clocks(), PoolState()
    by_provider: Counter[float] = Counter()
    by_shown: Counter[float] = Counter()
    for move, set_by, units, jitter in asked:
        clocks.go_on(move)
        if set_by and state.windows:
            clocks.shift += set_by
            by_shown.clear()
        answer = reserve_units(POOL, state, UnitRequest("job", {"requests": units}, 5), clocks.now)
        state = answer.state
        if isinstance(answer, ReservationGrant):
            by_provider[period_at(Day("UTC"), clocks.unset + jitter + skew).start] += units
            by_shown[period_at(Day("UTC"), clocks.now.wall + jitter + skew).start] += units
    assert max(by_provider.values(), default=0) <= AMOUNT
    assert max(by_shown.values(), default=0) <= AMOUNT


@given(steps, st.sampled_from([1.0, 5.0, 12.0]))
@settings(max_examples=300, deadline=None)
def test_a_calendars_wait_is_never_too_long_when_the_wall_clock_is_set(
    asked: list[tuple[float | tuple[str, float], float, int, float]], units: float
) -> None:
    """The wait is above 0 if the units do not fit now, they do not fit before it is over, and they do after
    a few such waits."""
    clocks, window = Clocks(), CalendarWindow()
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


def test_i26_no_units_are_granted_between_the_period_ends_of_both_clocks() -> None:
    begun = reserve_units(POOL, PoolState(), UnitRequest("first", {"requests": 1}, 5), Instant(NOON, 1000.0))
    answer = reserve_units(
        POOL, begun.state, UnitRequest("next", {"requests": 1}, 5), Instant(NOON + 14 * HOUR, 1000.0)
    )
    assert isinstance(answer, ReservationDenial)
    assert answer.wait == pytest.approx(12 * HOUR + 5), "until the day is over by the wall that was never set"


def test_i26_a_day_is_not_used_twice_after_a_wrong_clock_is_corrected() -> None:
    """The clock is set back by 30 hours, the pool uses a whole day, and the clock is set right again."""
    window, _ = CalendarWindow().taken(LIMIT, 1, Instant(NOON, 1000.0), GUARDS)
    later = 1000.0 + 44 * HOUR
    window, _ = window.taken(LIMIT, AMOUNT, Instant(NOON + 14 * HOUR, later), GUARDS)
    corrected = Instant(NOON + 44 * HOUR, later)
    assert window.room(LIMIT, corrected, GUARDS) == 0
    assert window.wait(LIMIT, 1, corrected, GUARDS) == pytest.approx(16 * HOUR + GUARDS.midnight)


def test_a_clock_that_was_a_month_ahead_does_not_close_the_limit_for_a_month() -> None:
    window, _ = CalendarWindow().taken(LIMIT, 1, Instant(NOON, 1000.0), GUARDS)
    later = 1000.0 + DAY
    window, _ = window.taken(LIMIT, AMOUNT, Instant(NOON + 31 * DAY, later), GUARDS)
    corrected = Instant(NOON + DAY, later)
    assert window.wait(LIMIT, 1, corrected, GUARDS) == pytest.approx(12 * HOUR + GUARDS.midnight)


def test_i26_after_a_boot_the_later_period_of_both_clocks_counts() -> None:
    window, _ = CalendarWindow().taken(LIMIT, 1, Instant(NOON, 1000.0), GUARDS)
    window, _ = window.taken(LIMIT, AMOUNT, Instant(NOON + 14 * HOUR, 1000.0 + 44 * HOUR), GUARDS)
    booted = window.lost(LIMIT, Instant(NOON + 44 * HOUR, 10.0))
    assert booted.room(LIMIT, Instant(NOON + 44 * HOUR, 10.0), GUARDS) == 0
    assert booted.room(LIMIT, Instant(NOON + 60 * HOUR + 6, 10.0 + 16 * HOUR + 6), GUARDS) == AMOUNT


def test_no_units_are_granted_that_may_arrive_on_the_next_day() -> None:
    """The margin before midnight covers a provider whose clock is ahead and a call that needs its jitter."""
    end = period_at(Day("UTC"), NOON).end
    for before, free in ((5.6, AMOUNT), (5.4, 0)):
        now = Instant(end - before, 1000.0)
        assert CalendarWindow().room(LIMIT, now, GUARDS) == free
        assert (CalendarWindow().wait(LIMIT, 1, now, GUARDS) == 0) == bool(free)


def _later(now: Instant, seconds: float) -> Instant:
    return Instant(now.wall + seconds, now.boot + seconds)
