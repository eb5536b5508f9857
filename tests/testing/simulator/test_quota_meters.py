"""Compares every meter with its definition, computed from the whole history each time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.testing.simulator.quota_meters import QuotaMeter, create_meter
from tidemill.testing.simulator.quotas import TICKS_PER_SECOND, Quota, find_next_date, local_date, to_ticks

History = list[tuple[int, int]]

# Gaps that fall exactly on the edge of a window are the important ones.
gaps = st.one_of(
    st.integers(0, 3 * TICKS_PER_SECOND),
    st.sampled_from([0, 1, TICKS_PER_SECOND - 1, TICKS_PER_SECOND, 10 * TICKS_PER_SECOND]),
)
steps = st.lists(st.tuples(gaps, st.integers(1, 7)), max_size=40)


def played(meter: QuotaMeter, moves: list[tuple[int, int]], *, only_fitting: bool) -> tuple[History, int]:
    """Plays the moves on a meter; returns the takes in order, and the time of the last move."""
    now, taken = 0, []
    for gap, units in moves:
        now += gap
        if not only_fitting or units <= meter.left(now):
            meter.take(units, now)
            taken.append((now, units))
    return taken, now


@given(steps, st.integers(1, 12), gaps, st.integers(1, 12), st.booleans())
def test_rolling_is_the_sum_of_the_log(
    moves: list[tuple[int, int]], amount: int, later: int, wanted: int, only_fitting: bool
) -> None:
    meter, window = create_meter(Quota.rolling("tokens", amount, per=10), 0), 10 * TICKS_PER_SECOND
    taken, now = played(meter, moves, only_fitting=only_fitting)
    now += later

    def left(at: int) -> int:
        return amount - sum(units for when, units in taken if at - window < when <= at)

    assert meter.left(now) == left(now)
    moments = sorted({now, *(when + window for when, _ in taken if when + window > now)})
    fits = [at - now for at in moments if left(at) >= wanted]
    assert meter.wait(wanted, now) == (fits[0] if wanted <= amount else None)
    assert meter.full(now) == next(at - now for at in moments if left(at) == amount)


@given(
    moves=steps,
    amount=st.integers(1, 12),
    later=gaps,
    wanted=st.integers(1, 12),
    interval=st.sampled_from([None, 1.0, 2.5]),
    only_fitting=st.booleans(),
)
def test_a_bucket_is_the_worst_stretch_up_to_now(
    *,
    moves: list[tuple[int, int]],
    amount: int,
    later: int,
    wanted: int,
    interval: float | None,
    only_fitting: bool,
) -> None:
    quota = Quota.bucket("tokens", amount, per=10, interval=interval)
    meter, rate = create_meter(quota, 0), Fraction(amount, 10 * TICKS_PER_SECOND)
    size = max(rate * to_ticks(interval or 10), Fraction(1))
    taken, now = played(meter, moves, only_fitting=only_fitting)
    now += later

    def level(at: int) -> Fraction:
        """The level of a bucket: its size minus the largest excess of any period over its refill."""
        stretches = [size - sum(u for _, u in taken[i:]) + rate * (at - t) for i, (t, _) in enumerate(taken)]
        return min([size, *stretches])

    assert meter.left(now) == level(now) // 1
    wait = meter.wait(wanted, now)
    if wanted > size:
        assert wait is None
    else:
        assert wait is not None
        assert level(now + wait) >= wanted
        assert wait == 0 or level(now + wait - 1) < wanted
    full = meter.full(now)
    assert level(now + full) == size
    assert full == 0 or level(now + full - 1) < size


def test_sixty_a_minute_may_mean_one_a_second() -> None:
    meter = create_meter(Quota.bucket("requests", 60, per=60, interval=1), 0)
    meter.take(1, 0)
    assert meter.left(TICKS_PER_SECOND - 1) == 0
    assert meter.left(TICKS_PER_SECOND) == 1
    assert meter.left(60 * TICKS_PER_SECOND) == 1


ZONES = ["America/Los_Angeles", "Asia/Shanghai", "America/Havana", "Africa/Cairo", "Asia/Beirut", "UTC"]
walls = st.integers(to_ticks(1_700_000_000), to_ticks(1_900_000_000))
long_gaps = st.integers(0, 30 * 3600 * TICKS_PER_SECOND)


@given(st.sampled_from(ZONES), walls, st.lists(st.tuples(long_gaps, st.integers(1, 5)), max_size=20))
def test_a_day_is_what_came_on_the_same_local_date(
    zone: str, wall: int, moves: list[tuple[int, int]]
) -> None:
    meter = create_meter(Quota.day("requests", 10, zone=zone), wall / TICKS_PER_SECOND)
    by_date: dict[date, int] = {}
    now = 0
    for gap, units in moves:
        now += gap
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=wall + now)
        today = moment.astimezone(ZoneInfo(zone)).date()
        assert meter.left(now) == 10 - by_date.get(today, 0)
        meter.take(units, now)
        by_date[today] = by_date.get(today, 0) + units
        wait = meter.wait(10, now)
        assert wait is not None
        assert (moment + timedelta(microseconds=wait)).astimezone(ZoneInfo(zone)).date() > today
        assert (moment + timedelta(microseconds=wait - 1)).astimezone(ZoneInfo(zone)).date() == today


@pytest.mark.parametrize(
    ("zone", "moment", "hours"),
    [
        ("America/Los_Angeles", "2026-03-08T08:00+00:00", 23),  # the clocks go forward
        ("America/Los_Angeles", "2026-11-01T07:00+00:00", 25),  # and back
        ("America/Havana", "2026-03-08T05:00+00:00", 23),  # there is no midnight that day
        ("Africa/Cairo", "2026-04-23T22:00+00:00", 23),
        ("Pacific/Apia", "2011-12-29T10:00+00:00", 24),  # there is no 30 December
    ],
)
def test_days_are_as_long_as_they_are(zone: str, moment: str, hours: int) -> None:
    start = to_ticks(datetime.fromisoformat(moment).timestamp())
    assert local_date(zone, start) > local_date(zone, start - 1)
    assert find_next_date(zone, start) == start + hours * 3600 * TICKS_PER_SECOND


@given(steps, st.integers(1, 12), gaps)
def test_a_period_begins_with_its_first_call(moves: list[tuple[int, int]], amount: int, later: int) -> None:
    meter = create_meter(Quota.period("tokens", amount, per=10), 0)
    taken, now = played(meter, moves, only_fitting=True)
    now += later
    began, used = None, 0
    for when, units in taken:
        if began is None or when >= began + 10 * TICKS_PER_SECOND:
            began, used = when, 0
        used += units
    over = began is None or now >= began + 10 * TICKS_PER_SECOND
    assert meter.left(now) == amount - (0 if over else used)


def test_a_period_does_not_grow_with_its_calls() -> None:
    meter = create_meter(Quota.period("tokens", 5, per=10), 0)
    meter.take(3, 0)
    meter.take(2, 6 * TICKS_PER_SECOND)
    assert (meter.left(6 * TICKS_PER_SECOND), meter.wait(1, 6 * TICKS_PER_SECOND)) == (
        0,
        4 * TICKS_PER_SECOND,
    )
    assert meter.left(10 * TICKS_PER_SECOND) == 5


def test_concurrent_counts_what_is_under_way() -> None:
    meter = create_meter(Quota.concurrent(2), 0)
    meter.take(1, 0)
    meter.take(1, 5)
    assert (meter.left(5), meter.wait(1, 5)) == (0, None)
    meter.give_back(1)
    assert (meter.left(6), meter.wait(1, 6)) == (1, 0)


@pytest.mark.parametrize("shape", ["rolling", "bucket"])
def test_a_lower_amount_counts_at_once(shape: str) -> None:
    meter = create_meter(Quota(unit="requests", amount=10, shape=shape, per=10), 0)  # type: ignore[arg-type]
    meter.take(4, 0)
    meter.change(5, 0)
    assert meter.left(0) == (1 if shape == "rolling" else 5)
    meter.change(10, 0)
    assert meter.left(0) == (6 if shape == "rolling" else 5)  # a bucket refills at its own rate


def test_a_bucket_that_counts_refused_calls_stays_empty_during_retries() -> None:
    meter = create_meter(Quota.bucket("requests", 10, per=10), 0)
    meter.take(10, 0)
    for now in range(0, 30 * TICKS_PER_SECOND, TICKS_PER_SECOND // 2):
        assert meter.left(now) == 0
        meter.reject(now)
    assert meter.left(30 * TICKS_PER_SECOND + TICKS_PER_SECOND // 2) == 1


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (lambda: Quota.rolling("requests", -1), "amount"),
        (lambda: Quota.rolling("requests", 1, per=0), "per"),
        (lambda: Quota.bucket("requests", 1, per=60, interval=61), "interval"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(made: object, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        made()  # type: ignore[operator]
