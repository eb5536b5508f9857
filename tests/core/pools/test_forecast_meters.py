"""The meters of a forecast, compared with sums over everything that was ever taken."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.calendars import Day
from tidemill.core.forecast.meters import (
    TIME_TOLERANCE_SECONDS,
    BucketMeter,
    CalendarMeter,
    ClosedMeter,
    LimitMeter,
    WindowMeter,
)
from tidemill.core.limits import Limit
from tidemill.core.windows import Guards

DAY = 86_400.0
NOON = 1_777_593_600.0 + DAY / 2  # in UTC
GUARDS = Guards()
STEPS = ((0.0, 10.0), (25.0, 20.0), (70.0, 5.0))
METERS: dict[str, Callable[[], LimitMeter]] = {
    "held": lambda: WindowMeter(STEPS, 30.0, [(5.0, 5.0, 2.0), (8.0, 11.0, 3.0)]),
    "refilled": lambda: BucketMeter(STEPS, 60.0, 4.0, 1.0),
    "counted": lambda: CalendarMeter(STEPS, Limit.tokens(10, per=Day("UTC")), 4.0, NOON, GUARDS),
    "shut": lambda: ClosedMeter(40.0),
}
lengths, amounts = st.sampled_from([0.0, 0.5, 7.0]), st.sampled_from([0.0, 1.0, 2.0])


def amount_at(now: float) -> float:
    return [amount for since, amount in STEPS if since <= now + TIME_TOLERANCE_SECONDS][-1]


@pytest.mark.parametrize("kind", sorted(METERS))
def test_the_next_change_is_in_the_future(kind: str) -> None:
    """A change that is not in the future would stop the simulation."""
    meter, now = METERS[kind](), 0.0
    meter.advance(now)
    meter.take(3.0, now)
    next_change = []
    while math.isfinite(turn := meter.next_change()) and turn < 3 * DAY:
        assert turn > now + TIME_TOLERANCE_SECONDS
        next_change.append(turn)
        now = turn
        meter.advance(now)
    expected = {
        "held": [5.0, 8.0, 11.0, 25.0, 30.0, 70.0],
        "refilled": [25.0, 70.0],
        "shut": [40.0],
        "counted": [25.0, 70.0, *(days for day in range(3) for days in _turns_of(day))],
    }
    assert next_change == pytest.approx(expected[kind])


def _turns_of(day: int) -> list[float]:
    midnight = DAY / 2 + day * DAY
    around = [midnight - GUARDS.midnight - GUARDS.jitter, midnight, midnight + GUARDS.midnight]
    return [moment for moment in around if moment < 3 * DAY]


@given(st.lists(st.tuples(lengths, amounts), max_size=30))
def test_held_units_return_as_evenly_as_they_were_taken(taken: list[tuple[float, float]]) -> None:
    hold, now = 30.0, 0.0
    meter = WindowMeter(STEPS, hold, [])
    past: list[tuple[float, float, float]] = []
    for lasts, units in taken:
        if units:
            meter.take(units, now + lasts)
            past.append((now, now + lasts, units))
        now += lasts
        meter.advance(now)
        out = sum(units * _share(begin + hold, end + hold, now) for begin, end, units in past)
        assert meter.room() == pytest.approx(amount_at(now) - out, abs=1e-4)
        going = [
            one
            for one in past
            if one[0] + hold <= now + TIME_TOLERANCE_SECONDS < one[1] + hold - TIME_TOLERANCE_SECONDS
        ]
        assert meter.inflow() == pytest.approx(sum(units / (end - begin) for begin, end, units in going))


def _share(begin: float, end: float, now: float) -> float:
    """Returns the share of a returning amount that is still in use."""
    if now + TIME_TOLERANCE_SECONDS >= end:
        return 0.0
    return 1.0 if now <= begin else (end - now) / (end - begin)


def test_an_even_flow_is_one_time_span() -> None:
    meter = WindowMeter(((0.0, 100.0),), 30.0, [])
    for second in range(20):
        meter.advance(float(second))
        meter.take(2.0, second + 1.0)
    assert meter.next_change() == 30.0
    meter.advance(30.0)
    assert meter.next_change() == 50.0
    assert meter.inflow() == pytest.approx(2.0)


def test_units_return_in_turn() -> None:
    """A short hold does not overtake units that return later."""
    meter = WindowMeter(((0.0, 10.0),), 5.0, [(20.0, 20.0, 4.0)])
    meter.take(3.0, 0.0)
    assert meter.room() == 3.0
    meter.advance(10.0)
    assert (meter.room(), meter.next_change()) == (3.0, 20.0)
    meter.advance(20.0)
    assert (meter.room(), meter.next_change()) == (10.0, math.inf)


def test_a_bucket_refills_at_its_rate_up_to_its_size() -> None:
    meter = BucketMeter(STEPS, 60.0, 4.0, 1.0)
    assert meter.room() == 5.0
    assert meter.inflow() == pytest.approx(10 / 60)
    meter.advance(12.0)
    assert meter.room() == pytest.approx(7.0)
    meter.take(6.0, 13.0)
    assert meter.room() == pytest.approx(1.0)
    meter.advance(25.0)
    assert meter.room() == pytest.approx(19.0 - 8.0 + 13 / 6)
    assert meter.inflow() == pytest.approx(20 / 60)
    meter.advance(60.0)
    assert meter.room() == 19.0


def test_a_day_is_counted_until_its_end_and_grants_nothing_around_it() -> None:
    meter = CalendarMeter(((0.0, 10.0),), Limit.tokens(10, per=Day("UTC")), 4.0, NOON, GUARDS)
    assert (meter.room(), meter.inflow()) == (6.0, 0.0)
    meter.take(5.0, 0.0)
    midnight = DAY / 2
    rooms = {}
    for at in (
        1.0,
        midnight - GUARDS.midnight - GUARDS.jitter - 0.1,
        midnight - GUARDS.midnight - GUARDS.jitter + 0.1,
        midnight + 0.1,
        midnight + GUARDS.midnight + 0.1,
    ):
        meter.advance(at)
        rooms[at] = meter.room()
    assert list(rooms.values()) == [1.0, 1.0, 0.0, 0.0, 10.0]


def test_a_debt_of_the_day_stays_while_it_is_closed() -> None:
    meter = CalendarMeter(((0.0, 10.0),), Limit.tokens(10, per=Day("UTC")), 14.0, NOON, GUARDS)
    assert meter.room() == -4.0
    meter.advance(DAY / 2 - GUARDS.midnight)
    assert meter.room() == -4.0


def test_a_closed_meter_grants_nothing_and_then_everything() -> None:
    meter = ClosedMeter(40.0)
    meter.advance(39.9)
    assert (meter.room(), meter.inflow(), meter.next_change()) == (0.0, 0.0, 40.0)
    meter.advance(40.0)
    meter.take(1e9, 40.0)
    assert (meter.room(), meter.inflow(), meter.next_change()) == (math.inf, 0.0, math.inf)
