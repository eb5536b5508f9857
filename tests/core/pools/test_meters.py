"""The meters of a forecast, against sums over everything that was ever taken."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.calendars import Day
from tidemill.core.forecast.meters import SOON, Counted, Held, Meter, Refilled, Shut
from tidemill.core.limits import Limit
from tidemill.core.windows import Guards

DAY = 86_400.0
NOON = 1_777_593_600.0 + DAY / 2  # in UTC
GUARDS = Guards()
STEPS = ((0.0, 10.0), (25.0, 20.0), (70.0, 5.0))
METERS: dict[str, Callable[[], Meter]] = {
    "held": lambda: Held(STEPS, 30.0, [(5.0, 5.0, 2.0), (8.0, 11.0, 3.0)]),
    "refilled": lambda: Refilled(STEPS, 60.0, 4.0, 1.0),
    "counted": lambda: Counted(STEPS, Limit.tokens(10, per=Day("UTC")), 4.0, NOON, GUARDS),
    "shut": lambda: Shut(40.0),
}
lengths, amounts = st.sampled_from([0.0, 0.5, 7.0]), st.sampled_from([0.0, 1.0, 2.0])


def amount_at(now: float) -> float:
    return [amount for since, amount in STEPS if since <= now + SOON][-1]


@pytest.mark.parametrize("kind", sorted(METERS))
def test_a_turn_lies_ahead_until_there_is_none(kind: str) -> None:
    """A turn that is not ahead would hold the walk where it is."""
    meter, now = METERS[kind](), 0.0
    meter.advance(now)
    meter.take(3.0, now)
    turns = []
    while math.isfinite(turn := meter.turns()) and turn < 3 * DAY:
        assert turn > now + SOON
        turns.append(turn)
        now = turn
        meter.advance(now)
    expected = {
        "held": [5.0, 8.0, 11.0, 25.0, 30.0, 70.0],
        "refilled": [25.0, 70.0],
        "shut": [40.0],
        "counted": [25.0, 70.0, *(days for day in range(3) for days in _turns_of(day))],
    }
    assert turns == pytest.approx(expected[kind])


def _turns_of(day: int) -> list[float]:
    midnight = DAY / 2 + day * DAY
    around = [midnight - GUARDS.midnight - GUARDS.jitter, midnight, midnight + GUARDS.midnight]
    return [moment for moment in around if moment < 3 * DAY]


@given(st.lists(st.tuples(lengths, amounts), max_size=30))
def test_what_is_held_comes_back_as_evenly_as_it_was_taken(taken: list[tuple[float, float]]) -> None:
    hold, now = 30.0, 0.0
    meter = Held(STEPS, hold, [])
    past: list[tuple[float, float, float]] = []
    for lasts, units in taken:
        if units:
            meter.take(units, now + lasts)
            past.append((now, now + lasts, units))
        now += lasts
        meter.advance(now)
        out = sum(units * _share(begin + hold, end + hold, now) for begin, end, units in past)
        assert meter.room() == pytest.approx(amount_at(now) - out, abs=1e-4)
        going = [one for one in past if one[0] + hold <= now + SOON < one[1] + hold - SOON]
        assert meter.inflow() == pytest.approx(sum(units / (end - begin) for begin, end, units in going))


def _share(begin: float, end: float, now: float) -> float:
    """Of what comes back between the two, the part that is still out."""
    if now + SOON >= end:
        return 0.0
    return 1.0 if now <= begin else (end - now) / (end - begin)


def test_what_goes_on_evenly_is_one_stretch() -> None:
    meter = Held(((0.0, 100.0),), 30.0, [])
    for second in range(20):
        meter.advance(float(second))
        meter.take(2.0, second + 1.0)
    assert meter.turns() == 30.0
    meter.advance(30.0)
    assert meter.turns() == 50.0
    assert meter.inflow() == pytest.approx(2.0)


def test_what_is_out_comes_back_in_turn() -> None:
    """A short hold does not overtake units that come back later."""
    meter = Held(((0.0, 10.0),), 5.0, [(20.0, 20.0, 4.0)])
    meter.take(3.0, 0.0)
    assert meter.room() == 3.0
    meter.advance(10.0)
    assert (meter.room(), meter.turns()) == (3.0, 20.0)
    meter.advance(20.0)
    assert (meter.room(), meter.turns()) == (10.0, math.inf)


def test_a_bucket_refills_by_the_amount_of_its_time_up_to_what_it_holds() -> None:
    meter = Refilled(STEPS, 60.0, 4.0, 1.0)
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


def test_a_day_is_counted_until_its_end_and_nothing_is_taken_around_it() -> None:
    meter = Counted(((0.0, 10.0),), Limit.tokens(10, per=Day("UTC")), 4.0, NOON, GUARDS)
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


def test_more_than_the_day_allows_stays_missing_while_it_is_closed() -> None:
    meter = Counted(((0.0, 10.0),), Limit.tokens(10, per=Day("UTC")), 14.0, NOON, GUARDS)
    assert meter.room() == -4.0
    meter.advance(DAY / 2 - GUARDS.midnight)
    assert meter.room() == -4.0


def test_what_is_shut_has_nothing_and_then_no_bound() -> None:
    meter = Shut(40.0)
    meter.advance(39.9)
    assert (meter.room(), meter.inflow(), meter.turns()) == (0.0, 0.0, 40.0)
    meter.advance(40.0)
    meter.take(1e9, 40.0)
    assert (meter.room(), meter.inflow(), meter.turns()) == (math.inf, 0.0, math.inf)
