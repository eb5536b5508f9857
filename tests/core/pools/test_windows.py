"""No arrival pattern with jitter up to the guard ever exceeds a limit (I14)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.calendars import Day, period_at
from tidemill.core.limits import Charge, Limit, Shape, ShapeName
from tidemill.core.windows import Guards, Instant, WindowState, new_window
from tidemill.core.windows.bucket import BucketWindow
from tidemill.errors import ConfigurationError

GUARDS = Guards(jitter=0.5, midnight=5.0)
Asked = tuple[float, float, float, float | None, int]
Call = tuple[float, float]
"""The arrival time at the provider, and the units."""

steps = st.lists(
    st.tuples(
        # since the step before: within a slot, and around the end of a window with and without its jitter
        st.sampled_from([0.0, 0.0, 0.01, 0.3, 1.0, 7.0, 30.0, 59.9, 60.1, 60.3, 60.6, 61.0]),
        st.sampled_from([1.0, 3.0, 6.0, 12.0]) | st.floats(0.5, 12.0),  # units asked for
        st.sampled_from([0.0, GUARDS.jitter]) | st.floats(0.0, GUARDS.jitter),  # until they are counted
        st.sampled_from([None, 0.0, 0.5, 1.0]),  # the share that is used in the end; None if not known yet
        st.sampled_from([0, 0, 1, 2, 5]),  # how many steps later unused units return
    ),
    max_size=40,
)


def drive(limit: Limit, asked: list[Asked], start: float) -> list[Call]:
    """Takes units that fit by the room or by the wait, as `reserve` does, and returns unused ones. Returns
    the calls that reached the provider."""
    window: WindowState = new_window(limit)
    calls, boot = [], 1000.0
    unused: list[tuple[int, float, float]] = []
    for number, (gap, units, jitter, used, later) in enumerate(asked):
        boot += gap
        now = Instant(start + boot, boot)
        if units <= window.room(limit, now, GUARDS) or window.wait(limit, units, now, GUARDS) == 0:
            window, mark = window.taken(limit, units, now, GUARDS)
            share = 1.0 if used is None else used
            unused.append((number + later, units * (1 - share), mark))
            calls.append((boot + jitter, units * share))
        for due, rest, mark in unused:
            if due == number and rest > 0:
                window = window.returned(limit, rest, mark, now)
    return calls


def most_within(calls: list[Call], seconds: float) -> float:
    calls = sorted(calls)
    return max(
        (sum(u for at, u in calls if since <= at <= since + seconds) for since, _ in calls), default=0.0
    )


@given(steps)
@settings(max_examples=300, deadline=None)
@pytest.mark.parametrize("shape", ["rolling", "paced"])
def test_rolling_and_paced_windows_hold_in_every_time_span(shape: ShapeName, asked: list[Asked]) -> None:
    limit = Limit.tokens(12, per="minute", shape=shape)
    assert most_within(drive(limit, asked, 1.8e9), 60) <= 12 + 1e-6


@given(steps)
@settings(max_examples=300, deadline=None)
def test_a_bucket_never_empties_the_providers(asked: list[Asked]) -> None:
    limit = Limit.tokens(12, per="minute", shape="bucket")
    level, at = 12.0, 0.0
    for arrives, units in sorted(drive(limit, asked, 1.8e9)):
        level, at = min(12.0, level + (arrives - at) * 12 / 60) - units, arrives
        assert level >= -1e-6


@given(st.sampled_from(["America/Los_Angeles", "Asia/Beirut", "Asia/Shanghai", "Africa/Cairo"]), st.data())
@settings(max_examples=200, deadline=None)
def test_a_calendar_window_holds_on_every_local_day(zone: str, data: st.DataObject) -> None:
    limit = Limit.requests(12, per=Day(zone))
    start: float = data.draw(st.integers(1_767_000_000, 1_799_000_000))  # all of 2026
    asked: list[Asked] = [(step[0] * 300, *step[1:]) for step in data.draw(steps)]
    skew = data.draw(
        st.sampled_from([-GUARDS.midnight, 0.0, GUARDS.midnight])
    )  # the provider's clock differs from ours
    if data.draw(st.booleans()):  # the first call comes when only the jitter delays it
        start = period_at(Day(zone), start).end - 1000.0 - GUARDS.midnight - 0.4
        asked.insert(0, (0.0, 6.0, GUARDS.jitter, None, 0))
    days: dict[float, float] = {}
    for arrives, units in drive(limit, asked, start):
        day = period_at(Day(zone), start + arrives + skew).start
        days[day] = days.get(day, 0.0) + units
    assert max(days.values(), default=0.0) <= 12 + 1e-6


@given(st.lists(st.tuples(steps, st.sampled_from([2.0, 12.0, 40.0])), max_size=6))
@settings(max_examples=300, deadline=None)
def test_a_resized_bucket_never_empties_the_providers(edits: list[tuple[list[Asked], float]]) -> None:
    """A provider's larger bucket holds no more than the smaller one did, and refills."""
    boot, level, size, at = 1000.0, 11.0, 12.0, 1000.0
    limit = Limit.tokens(size, per="minute", shape="bucket")
    window, _ = BucketWindow().taken(limit, 1.0, Instant(0.0, boot), GUARDS)
    for asked, amount in edits:
        for gap, units, *_ in asked:
            boot += gap
            now = Instant(0.0, boot)
            level, at = min(size, level + size / 60 * (boot - at)), boot
            if units <= window.room(limit, now, GUARDS):
                window, _ = window.taken(limit, units, now, GUARDS)
                level -= units
                assert level >= -1e-6
        level, at = min(amount, level + size / 60 * (boot - at)), boot
        size = amount
        limit = Limit.tokens(size, per="minute", shape="bucket")
        window = window.resized(limit, Instant(0.0, boot), GUARDS)


@given(steps, st.sampled_from(["rolling", "paced", "bucket"]))
@settings(max_examples=200, deadline=None)
def test_a_wait_is_exact(asked: list[Asked], shape: ShapeName) -> None:
    """After the wait the units fit, and a moment before they do not."""
    limit = Limit.tokens(12, per="minute", shape=shape)
    window, boot = new_window(limit), 1000.0
    for gap, units, *_ in asked:
        boot += gap
        now = Instant(boot, boot)
        wait = window.wait(limit, units, now, GUARDS)
        if math.isinf(wait):
            assert units > 12 - 0.1
            continue
        then = Instant(boot + wait + 1e-6, boot + wait + 1e-6)
        assert window.room(limit, then, GUARDS) >= units - 1e-6
        if wait > 1e-3:
            before = Instant(then.wall - 2e-3, then.boot - 2e-3)
            assert window.room(limit, before, GUARDS) < units
        else:
            window, _ = window.taken(limit, units, now, GUARDS)


def test_a_rolling_window_is_fully_used() -> None:
    limit, window, boot, taken = (
        Limit.requests(10, per="minute"),
        new_window(Limit.requests(10, per="minute")),
        0.0,
        0,
    )
    while boot < 600:
        now = Instant(boot, boot)
        wait = window.wait(limit, 1, now, GUARDS)
        if wait == 0:
            window, _ = window.taken(limit, 1, now, GUARDS)
            taken += 1
        boot += max(wait, 0.001)
    assert taken >= 98, "ten windows of ten, less the guard"


def test_lost_state_counts_as_used() -> None:
    for shape in ("rolling", "bucket", "paced"):
        limit = Limit.requests(10, per="minute", shape=shape)
        window, now = new_window(limit), Instant(50.0, 50.0)
        lost = window.lost(limit, now)
        assert lost.room(limit, now, GUARDS) <= 0
        assert lost.wait(limit, 10 * (1 - 0.01), now, GUARDS) == pytest.approx(60, abs=1.2)


lasting = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 1.0, 10.0, 29.0]),  # since the call before
        st.sampled_from([1.0, 5.0, 11.0, 12.0]),  # units reserved
        st.sampled_from([0.0, 0.5, 1.0]),  # the share that is used
        st.sampled_from([0.0, GUARDS.jitter]),  # until they are counted
        st.sampled_from([0.1, 11.0, 30.0, 60.0]),  # until the call has ended
    ),
    min_size=3,
    max_size=30,
)


@given(lasting)
@settings(max_examples=400, deadline=None)
def test_a_late_refund_to_a_bucket_does_not_count_twice(calls: list[tuple[float, ...]]) -> None:
    """Unused units return when the call has ended, also if others took units meanwhile."""
    limit = Limit.tokens(12, per="minute", shape="bucket")
    window: WindowState = new_window(limit)
    boot, arrivals = 1000.0, []
    ends: list[tuple[float, float, float]] = []
    for gap, units, share, jitter, lasts in calls:
        boot += gap
        for end, rest, mark in sorted(ends):
            if end <= boot:
                window = window.returned(limit, rest, mark, Instant(end, end))
        ends = [one for one in ends if one[0] > boot]
        now = Instant(boot, boot)
        if window.room(limit, now, GUARDS) < units:
            continue
        window, mark = window.taken(limit, units, now, GUARDS)
        arrivals.append((boot + jitter, units * share))
        ends.append((boot + lasts, units * (1 - share), mark))
    level, at = 12.0, 0.0
    for arrives, units in sorted(arrivals):
        level, at = min(12.0, level + (arrives - at) * 12 / 60) - units, arrives
        assert level >= -1e-6


@given(st.lists(st.floats(0.0, 20.0), min_size=2, max_size=8).map(sorted))
def test_refunds_to_a_bucket_lose_the_inflow_only_once(ends: list[float]) -> None:
    """Calls in flight together lose the inflow of that time once, not once each."""
    limit = Limit.tokens(1200, per="minute", shape="bucket")
    window: WindowState = new_window(limit)
    for _ in ends:
        window, mark = window.taken(limit, 420.0, Instant(1000.0, 1000.0), GUARDS)
    last = Instant(0.0, 1000.0 + ends[-1])
    before = window.room(limit, last, GUARDS)
    for end in ends:
        window = window.returned(limit, 420.0, mark, Instant(0.0, 1000.0 + end))
    came_back = window.room(limit, last, GUARDS) - before
    assert came_back == pytest.approx(420.0 * len(ends) - ends[-1] * 20)


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, GUARDS.jitter)), max_size=60), st.integers(1, 600))
@settings(max_examples=300, deadline=None)
def test_a_pace_holds_if_a_minute_is_enforced_as_seconds(gaps: list[Call], amount: int) -> None:
    """60 a minute may mean 1 a second: the provider's bucket holds one second's inflow, or one call."""
    limit = Limit.requests(amount, per="minute", shape="paced")
    window, boot, arrivals = new_window(limit), 1000.0, []
    for gap, jitter in gaps:
        boot += gap
        now = Instant(boot, boot)
        boot += window.wait(limit, 1, now, GUARDS)
        now = Instant(boot, boot)
        assert window.room(limit, now, GUARDS) >= 1 - 1e-6
        window, _ = window.taken(limit, 1, now, GUARDS)
        arrivals.append(boot + jitter)
    size = max(1.0, amount / 60)
    level, at = size, 0.0
    for arrives in sorted(arrivals):
        level, at = min(size, level + (arrives - at) * amount / 60) - 1, arrives
        assert level >= -1e-6


@pytest.mark.parametrize("per", [0.0, -1.0, math.inf, math.nan])
def test_an_infinite_window_is_refused(per: float) -> None:
    with pytest.raises(ConfigurationError, match="per: must be above 0 seconds"):
        Limit.requests(1, per=per)
    assert Limit.requests(1, per=0.5).per == 0.5


@pytest.mark.parametrize("amount", [0.0, -1.0, math.inf, math.nan])
def test_an_amount_is_a_number_above_0(amount: float) -> None:
    with pytest.raises(ConfigurationError, match="amount: must be a number above 0"):
        Limit.requests(amount, per="minute")


@pytest.mark.parametrize("unit", ["requests", "jobs", "tokens", "characters", "seconds", "usd"])
@pytest.mark.parametrize("charge", ["actual", "reserved", "completed"])
def test_each_unit_has_a_constructor(unit: str, charge: Charge) -> None:
    named = getattr(Limit, unit)(5, per="hour", shape="bucket", charge=charge)
    assert named == Limit(unit, 5, 3600.0, Shape.BUCKET, charge)
    assert Limit.of(unit, 5, per=3600, shape="bucket", charge=charge) == named
