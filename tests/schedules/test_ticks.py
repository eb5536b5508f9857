"""Ticks: every zone, through every change of its clocks (I12)."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.schedules.zones import BEGIN, END, EXPRESSIONS, changes, expected, with_changes
from tidemill.schedules.ticks import (
    MOST_DUE,
    Rule,
    due_ticks,
    jitter,
    next_tick,
    problem_with_cron,
    problem_with_zone,
)


def ticks(rule: Rule, begin: datetime, end: datetime) -> list[float]:
    found, after = [], begin.timestamp()
    while (tick := next_tick(rule, after)) is not None and tick <= end.timestamp():
        assert tick > after
        found.append(tick)
        after = tick
    return found


def around_changes(zones: list[str]) -> None:
    """A day and a half to either side of each, from any second on."""
    for zone in zones:
        for change in changes(zone):
            begin, end = change - timedelta(hours=36), change + timedelta(hours=36)
            for expression in EXPRESSIONS:
                found = ticks(Rule(cron=expression, tz=zone), begin, end)
                assert found == expected(expression, zone, begin, end), (zone, expression, change)


ODD = ("Australia/Lord_Howe", "America/Havana", "Asia/Beirut", "Africa/Casablanca", "Europe/Berlin")
"""Half an hour, a change at midnight, one that goes by the moon."""


@pytest.fixture(scope="module")
def zones() -> list[str]:
    """All there are in the long run, some at other times."""
    if os.environ.get("TIDEMILL_EVERY_ZONE"):
        return with_changes()
    return [*ODD, "Asia/Shanghai", "America/New_York"]


def test_i12_around_every_change_of_the_clocks(zones: list[str]) -> None:
    around_changes(zones)


def test_i12_one_a_day_in_every_zone(zones: list[str]) -> None:
    """Two years: as many ticks as days, on as many dates, except where a jump pushed one to the next."""
    for zone in zones:
        place = ZoneInfo(zone)
        first = datetime(2025, 1, 2, tzinfo=place).astimezone(UTC) - timedelta(seconds=1)
        last = datetime(2026, 12, 31, tzinfo=place).astimezone(UTC) - timedelta(seconds=1)
        for expression in ("0 3 * * *", "30 2 * * *"):
            found = ticks(Rule(cron=expression, tz=zone), first, last)
            dates = [datetime.fromtimestamp(tick, place).date() for tick in found]
            assert len(set(dates)) == len(dates) == 728, (zone, expression)


def test_a_fold_ticks_once_and_a_gap_is_shifted_once() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    rule = Rule(cron="30 2 * * *", tz="Europe/Berlin")
    fold, gap = datetime(2026, 10, 25, tzinfo=berlin), datetime(2026, 3, 29, tzinfo=berlin)
    assert ticks(rule, fold, fold + timedelta(days=1)) == [
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp()
    ]
    assert ticks(rule, gap, gap + timedelta(days=1)) == [datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp()]


def test_asked_at_any_moment_the_answer_is_the_same() -> None:
    drawn = random.Random(3)
    for zone in ODD:
        change = drawn.choice(changes(zone))
        for expression in EXPRESSIONS:
            rule = Rule(cron=expression, tz=zone)
            all_of_them = ticks(rule, change - timedelta(days=1), change + timedelta(days=35))
            for _ in range(20):
                after = change.timestamp() + drawn.uniform(-4e4, 4e4)
                assert next_tick(rule, after) == min(tick for tick in all_of_them if tick > after)


@pytest.mark.parametrize("every", [1.0, 0.1, 3600.0, 86_400.0, 7.3])
def test_an_interval_does_not_drift(every: float) -> None:
    anchor = BEGIN.timestamp() + 0.25
    rule = Rule(every=every, anchor=anchor)
    tick = anchor
    for count in range(1, 2000):
        found = next_tick(rule, tick)
        assert found == anchor + count * every
        tick = found
    assert next_tick(rule, anchor + 1e6 * every) == anchor + (1e6 + 1) * every


def test_start_and_end_bound_it() -> None:
    start, end = BEGIN.timestamp() + 90, BEGIN.timestamp() + 300
    beat = Rule(every=100, anchor=0, start=start, end=end)
    assert [next_tick(beat, 0), next_tick(beat, start), next_tick(beat, start + 200)] == [
        start,
        start + 100,
        None,
    ]
    minutes = Rule(cron="* * * * *", start=start, end=end)
    found = ticks(minutes, BEGIN, END)
    assert found == [BEGIN.timestamp() + 60 * minute for minute in (2, 3, 4, 5)]


@pytest.mark.parametrize(
    "rule", [Rule(every=1.0), Rule(cron="* * * * *", tz="Asia/Shanghai"), Rule(cron="0 3 * * *")]
)
def test_of_what_is_over_the_latest_are_found(rule: Rule) -> None:
    now = END.timestamp() + 0.5
    due = due_ticks(rule, BEGIN.timestamp(), now)
    assert len(due.ticks) == MOST_DUE
    assert due.next == next_tick(rule, now)
    following = [*due.ticks[1:], due.next]
    assert [next_tick(rule, tick) for tick in due.ticks] == following
    few = due_ticks(rule, due.ticks[-4], now)
    assert few == (due.ticks[-3:], due.next)
    assert due_ticks(rule, now, now) == ([], due.next)


def test_jitter_is_upward_and_the_same_for_a_tick() -> None:
    drawn = [jitter("nightly", 60.0 * tick, 30.0) for tick in range(1000)]
    assert drawn == [jitter("nightly", 60.0 * tick, 30.0) for tick in range(1000)]
    assert 0 <= min(drawn) < 1
    assert 29 < max(drawn) <= 30
    assert jitter("weekly", 60.0, 30.0) != jitter("nightly", 60.0, 30.0)
    assert jitter("nightly", 60.0, 0.0) == 0


@pytest.mark.parametrize(
    "expression", ["", "0 3 * *", "@daily", "61 * * * *", "0 0 31 2 *", "* * * * 5#9", "a b c d e"]
)
def test_what_is_no_cron_expression_is_named(expression: str) -> None:
    assert (problem_with_cron(expression) or "").startswith(f"cron: {expression!r}")


@pytest.mark.parametrize(
    "expression", ["0 3 * * *", "*/15 * * * *", "59 23 L * *", "0 9 * * 1-5", "*/10 * * * * *"]
)
def test_what_is_one_is_none(expression: str) -> None:
    assert problem_with_cron(expression) is None


def test_zones() -> None:
    assert problem_with_zone("Asia/Shanghai") is None
    for wrong in ("Mars/Base", "", "../etc/passwd"):
        assert (problem_with_zone(wrong) or "").startswith(f"tz: {wrong!r}")
