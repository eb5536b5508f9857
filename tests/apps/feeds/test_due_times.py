"""When a feed is fetched next, and why."""

from __future__ import annotations

import pytest

from tidemill_apps.feeds.due_times import (
    DAY_SECONDS,
    ConnectionCounts,
    DelayReason,
    NextRun,
    RedirectRecord,
    WaitHints,
    count_redirect,
    first_run,
    is_overdue,
    next_after_failure,
    next_after_success,
    site_wait,
)

NOW, HOUR = 1_800_000_000.0, 3600.0


def test_a_feed_fetched_two_hours_ago_is_due_now_s19() -> None:
    due = first_run(NOW - 2 * HOUR, HOUR, NOW)
    assert max(0.0, due.at - NOW) == 0


def test_a_feed_fetched_half_an_hour_ago_is_due_in_half_an_hour_s19() -> None:
    due = first_run(NOW - 1800, HOUR, NOW)
    assert 29 * 60 <= due.at - NOW <= 31 * 60


def test_a_feed_that_was_never_fetched_is_due_now_s1() -> None:
    assert first_run(None, HOUR, NOW) == NextRun(NOW, DelayReason.NEW)


@pytest.mark.parametrize(("hours", "overdue"), [(1.5, False), (2.0, False), (2.1, True)])
def test_overdue_means_more_than_two_intervals_s9(hours: float, overdue: bool) -> None:
    assert is_overdue(NOW - hours * HOUR, HOUR, NOW) is overdue
    assert not is_overdue(None, HOUR, NOW)


@pytest.mark.parametrize(
    ("hints", "seconds", "reason"),
    [
        (WaitHints(), HOUR, DelayReason.INTERVAL),
        (WaitHints(max_age=60, ttl=90), HOUR, DelayReason.INTERVAL),
        (WaitHints(max_age=2 * HOUR), 2 * HOUR, DelayReason.MAX_AGE),
        (WaitHints(ttl=3 * HOUR, max_age=2 * HOUR), 3 * HOUR, DelayReason.TTL),
        (WaitHints(retry_after=30 * DAY_SECONDS), DAY_SECONDS, DelayReason.SERVER_WAIT),
        (WaitHints(max_age=-5), HOUR, DelayReason.INTERVAL),
    ],
)
def test_the_longest_wish_decides_up_to_a_day(hints: WaitHints, seconds: float, reason: DelayReason) -> None:
    assert next_after_success(NOW, HOUR, hints) == NextRun(NOW + seconds, reason)


def test_an_interval_may_be_longer_than_a_day() -> None:
    assert next_after_success(NOW, 7 * DAY_SECONDS, WaitHints()).at == NOW + 7 * DAY_SECONDS
    assert next_after_failure(NOW, 7 * DAY_SECONDS, 9).at == NOW + 7 * DAY_SECONDS


@pytest.mark.parametrize(
    ("failures", "hours", "reason"),
    [
        (1, 1, DelayReason.INTERVAL),
        (2, 2, DelayReason.FAILURES),
        (4, 8, DelayReason.FAILURES),
        (6, 24, DelayReason.FAILURES),
        (4000, 24, DelayReason.FAILURES),
    ],
)
def test_failures_lengthen_the_interval_to_a_day(failures: int, hours: float, reason: DelayReason) -> None:
    assert next_after_failure(NOW, HOUR, failures) == NextRun(NOW + hours * HOUR, reason)


def test_a_feed_that_is_gone_is_fetched_weekly() -> None:
    assert next_after_failure(NOW, HOUR, 1, gone=True) == NextRun(NOW + 7 * DAY_SECONDS, DelayReason.GONE)


def test_a_failure_with_retry_after_waits_for_it() -> None:
    due = next_after_failure(NOW, HOUR, 1, retry_after=5 * HOUR)
    assert due == NextRun(NOW + 5 * HOUR, DelayReason.SERVER_WAIT)


@pytest.mark.parametrize(
    ("retry_after", "reset", "wait"),
    [
        (7.0, "99", 7.0),
        (None, "45.5", 45.5),
        (None, str(NOW + 30), 30.0),
        (None, "soon", None),
        (None, None, None),
        (1e9, None, DAY_SECONDS),
    ],
)
def test_a_site_states_its_wait_in_two_ways(
    retry_after: float | None, reset: str | None, wait: float | None
) -> None:
    headers = {} if reset is None else {"x-ratelimit-reset": reset}
    assert site_wait(retry_after, headers, NOW) == wait


def test_a_redirect_counts_only_equal_answers_in_a_row() -> None:
    record = None
    for number in range(4):
        record = count_redirect(record, "http://a.example/", NOW + number * DAY_SECONDS)
    assert record == RedirectRecord("http://a.example/", 4, NOW)
    assert not record.is_confirmed(NOW + 4 * DAY_SECONDS)
    assert count_redirect(record, "http://a.example/", NOW).is_confirmed(NOW + DAY_SECONDS)  # type: ignore[union-attr]
    assert not count_redirect(record, "http://a.example/", NOW).is_confirmed(NOW + 60)  # type: ignore[union-attr]
    assert count_redirect(record, "http://b.example/", NOW) == RedirectRecord("http://b.example/", 1, NOW)
    assert count_redirect(record, None, NOW) is None


@pytest.mark.parametrize(
    ("counts", "down"),
    [
        (ConnectionCounts(0, 5, 3), True),
        (ConnectionCounts(1, 50, 30), False),
        (ConnectionCounts(0, 4, 4), False),
        (ConnectionCounts(0, 50, 2), False),
    ],
)
def test_our_network_is_down_if_nothing_connects(counts: ConnectionCounts, down: bool) -> None:
    assert counts.network_down is down
