"""Ticks in every zone, through every clock change (I12)."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.schedules.reference_ticks import BEGIN, END, EXPRESSIONS, changes, expected, with_changes
from tidemill.schedules.ticks import (
    MAX_DUE_TICKS,
    TickRule,
    due_ticks,
    next_tick,
    problem_with_cron,
    problem_with_zone,
    tick_jitter,
)


def ticks(rule: TickRule, begin: datetime, end: datetime) -> list[float]:
    found, after = [], begin.timestamp()
    while (tick := next_tick(rule, after)) is not None and tick <= end.timestamp():
        assert tick > after
        found.append(tick)
        after = tick
    return found


def around_changes(zones: list[str]) -> None:
    """Compares a day and a half on either side of each change, from any second on."""
    for zone in zones:
        for change in changes(zone):
            begin, end = change - timedelta(hours=36), change + timedelta(hours=36)
            for expression in EXPRESSIONS:
                found = ticks(TickRule(cron=expression, tz=zone), begin, end)
                assert found == expected(expression, zone, begin, end), (zone, expression, change)


ODD = ("Australia/Lord_Howe", "America/Havana", "Asia/Beirut", "Africa/Casablanca", "Europe/Berlin")
"""Zones with a change of half an hour, at midnight, and by the moon."""


@pytest.fixture(scope="module")
def zones() -> list[str]:
    """Returns all zones over many runs, some of them in one run."""
    if os.environ.get("TIDEMILL_EVERY_ZONE"):
        return with_changes()
    return [*ODD, "Asia/Shanghai", "America/New_York"]


def test_i12_ticks_around_every_clock_change(zones: list[str]) -> None:
    around_changes(zones)


def test_i12_one_tick_per_day_in_every_zone(zones: list[str]) -> None:
    """In two years there are as many ticks as days, on as many dates, except where a change moved one to
    the next day."""
    for zone in zones:
        place = ZoneInfo(zone)
        first = datetime(2025, 1, 2, tzinfo=place).astimezone(UTC) - timedelta(seconds=1)
        last = datetime(2026, 12, 31, tzinfo=place).astimezone(UTC) - timedelta(seconds=1)
        for expression in ("0 3 * * *", "30 2 * * *"):
            found = ticks(TickRule(cron=expression, tz=zone), first, last)
            dates = [datetime.fromtimestamp(tick, place).date() for tick in found]
            assert len(set(dates)) == len(dates) == 728, (zone, expression)


def test_a_fold_ticks_once_and_a_gap_is_shifted_once() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    rule = TickRule(cron="30 2 * * *", tz="Europe/Berlin")
    fold, gap = datetime(2026, 10, 25, tzinfo=berlin), datetime(2026, 3, 29, tzinfo=berlin)
    assert ticks(rule, fold, fold + timedelta(days=1)) == [
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp()
    ]
    assert ticks(rule, gap, gap + timedelta(days=1)) == [datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp()]


def test_the_next_tick_does_not_depend_on_the_moment_of_asking() -> None:
    drawn = random.Random(3)
    for zone in ODD:
        change = drawn.choice(changes(zone))
        for expression in EXPRESSIONS:
            rule = TickRule(cron=expression, tz=zone)
            all_of_them = ticks(rule, change - timedelta(days=1), change + timedelta(days=35))
            for _ in range(20):
                after = change.timestamp() + drawn.uniform(-4e4, 4e4)
                assert next_tick(rule, after) == min(tick for tick in all_of_them if tick > after)


@pytest.mark.parametrize("every", [1.0, 0.1, 3600.0, 86_400.0, 7.3])
def test_an_interval_does_not_drift(every: float) -> None:
    anchor = BEGIN.timestamp() + 0.25
    rule = TickRule(every=every, anchor=anchor)
    tick = anchor
    for count in range(1, 2000):
        found = next_tick(rule, tick)
        assert found == anchor + count * every
        tick = found
    assert next_tick(rule, anchor + 1e6 * every) == anchor + (1e6 + 1) * every


def test_start_and_end_bound_the_ticks() -> None:
    start, end = BEGIN.timestamp() + 90, BEGIN.timestamp() + 300
    beat = TickRule(every=100, anchor=0, start=start, end=end)
    assert [next_tick(beat, 0), next_tick(beat, start), next_tick(beat, start + 200)] == [
        start,
        start + 100,
        None,
    ]
    minutes = TickRule(cron="* * * * *", start=start, end=end)
    found = ticks(minutes, BEGIN, END)
    assert found == [BEGIN.timestamp() + 60 * minute for minute in (2, 3, 4, 5)]


@pytest.mark.parametrize(
    "rule", [TickRule(every=1.0), TickRule(cron="* * * * *", tz="Asia/Shanghai"), TickRule(cron="0 3 * * *")]
)
def test_only_the_latest_past_ticks_are_returned(rule: TickRule) -> None:
    now = END.timestamp() + 0.5
    due = due_ticks(rule, BEGIN.timestamp(), now)
    assert len(due.ticks) == MAX_DUE_TICKS
    assert due.next == next_tick(rule, now)
    following = [*due.ticks[1:], due.next]
    assert [next_tick(rule, tick) for tick in due.ticks] == following
    few = due_ticks(rule, due.ticks[-4], now)
    assert few == (due.ticks[-3:], due.next)
    assert due_ticks(rule, now, now) == ([], due.next)


def test_jitter_is_upward_and_the_same_for_a_tick() -> None:
    drawn = [tick_jitter("nightly", 60.0 * tick, 30.0) for tick in range(1000)]
    assert drawn == [tick_jitter("nightly", 60.0 * tick, 30.0) for tick in range(1000)]
    assert 0 <= min(drawn) < 1
    assert 29 < max(drawn) <= 30
    assert tick_jitter("weekly", 60.0, 30.0) != tick_jitter("nightly", 60.0, 30.0)
    assert tick_jitter("nightly", 60.0, 0.0) == 0


@pytest.mark.parametrize(
    "expression", ["", "0 3 * *", "@daily", "61 * * * *", "0 0 31 2 *", "* * * * 5#9", "a b c d e"]
)
def test_an_invalid_cron_expression_is_named(expression: str) -> None:
    assert (problem_with_cron(expression) or "").startswith(f"cron: {expression!r}")


@pytest.mark.parametrize(
    "expression", ["0 3 * * *", "*/15 * * * *", "59 23 L * *", "0 9 * * 1-5", "*/10 * * * * *"]
)
def test_a_valid_cron_expression_has_no_problem(expression: str) -> None:
    assert problem_with_cron(expression) is None


def test_zones() -> None:
    assert problem_with_zone("Asia/Shanghai") is None
    for wrong in ("Mars/Base", "", "../etc/passwd"):
        assert (problem_with_zone(wrong) or "").startswith(f"tz: {wrong!r}")
