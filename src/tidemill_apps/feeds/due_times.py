"""Decides when a feed is fetched next, and why then. Pure functions of values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

MINUTE_SECONDS = 60.0
DAY_SECONDS = 86_400.0
MAX_DELAY_SECONDS = DAY_SECONDS
"""No server and no failure delays a feed longer than this; an interval may be longer."""
GONE_DELAY_SECONDS = 7 * DAY_SECONDS
REDIRECT_ANSWERS, REDIRECT_SECONDS = 5, DAY_SECONDS
"""A permanent redirect is stored after this many equal answers over at least this time."""
OUTAGE_FETCHES, OUTAGE_SITES = 5, 3
OVERDUE_INTERVALS = 2
MIN_UNIX_TIME_SECONDS = 1_000_000_000.0
"""A reset header with a larger number is a Unix time, a smaller one is a number of seconds."""

Urgency = Literal["manual", "overdue", "normal"]
PRIORITIES: Mapping[Urgency, int] = {"manual": 1, "overdue": 2, "normal": 5}


class DelayReason(StrEnum):
    """Why the next fetch of a feed is at its time."""

    NEW = "new"
    INTERVAL = "interval"
    SERVER_WAIT = "retry_after"
    MAX_AGE = "max_age"
    TTL = "ttl"
    FAILURES = "failures"
    GONE = "gone"


class NextRun(msgspec.Struct, frozen=True):
    """The wall time of the next fetch, and the reason for it."""

    at: float
    reason: DelayReason


class WaitHints(msgspec.Struct, frozen=True, kw_only=True):
    """How many seconds a server asks readers to wait; None if it does not say."""

    retry_after: float | None = None
    max_age: float | None = None
    ttl: float | None = None


def next_after_success(now: float, interval: float, hints: WaitHints) -> NextRun:
    """Returns the next run after a fetch that ended at `now`. The longest of the feed's interval and the
    server's wishes decides; a wish counts for 24 hours at most. `interval` is in seconds."""
    waits = [
        (interval, DelayReason.INTERVAL),
        (_limit_wait(hints.retry_after), DelayReason.SERVER_WAIT),
        (_limit_wait(hints.max_age), DelayReason.MAX_AGE),
        (_limit_wait(hints.ttl), DelayReason.TTL),
    ]
    seconds, reason = max(waits, key=lambda wait: wait[0])
    return NextRun(now + seconds, reason)


def next_after_failure(
    now: float, interval: float, failures: int, *, retry_after: float | None = None, gone: bool = False
) -> NextRun:
    """Returns the next run after the final failure number `failures` in a row. The interval doubles with each
    failure after the first, up to 24 hours. A feed that is gone (410) is fetched weekly."""
    if gone:
        return NextRun(now + max(interval, GONE_DELAY_SECONDS), DelayReason.GONE)
    longer = max(interval, min(interval * 2.0 ** min(failures - 1, 20), MAX_DELAY_SECONDS))
    wished = _limit_wait(retry_after)
    if wished > longer:
        return NextRun(now + wished, DelayReason.SERVER_WAIT)
    return NextRun(now + longer, DelayReason.FAILURES if longer > interval else DelayReason.INTERVAL)


def first_run(last_fetched: float | None, interval: float, now: float) -> NextRun:
    """Returns when a feed is due that has no stored next run. A feed that was never fetched is due now."""
    if last_fetched is None:
        return NextRun(now, DelayReason.NEW)
    return NextRun(last_fetched + interval, DelayReason.INTERVAL)


def is_overdue(last_fetched: float | None, interval: float, now: float) -> bool:
    return last_fetched is not None and now - last_fetched > OVERDUE_INTERVALS * interval


def _limit_wait(seconds: float | None) -> float:
    return min(max(seconds or 0.0, 0.0), MAX_DELAY_SECONDS)


def site_wait(retry_after: float | None, headers: Mapping[str, str], now: float) -> float | None:
    """Returns the seconds that a site asks to wait, at most 24 hours: its Retry-After, or else its header
    `x-ratelimit-reset`. Returns None if it has neither."""
    if retry_after is None:
        try:
            reset = float(headers.get("x-ratelimit-reset", ""))
        except ValueError:
            return None
        retry_after = reset - now if reset > MIN_UNIX_TIME_SECONDS else reset
    return _limit_wait(retry_after)


class RedirectRecord(msgspec.Struct, frozen=True):
    """A permanent redirect that a feed answers with: its target, the number of equal answers in a row, and
    the wall time of the first."""

    url: str
    count: int
    since: float

    def is_confirmed(self, now: float) -> bool:
        """True if the feed's URL may be replaced by the target."""
        return self.count >= REDIRECT_ANSWERS and now - self.since >= REDIRECT_SECONDS


def count_redirect(before: RedirectRecord | None, target: str | None, now: float) -> RedirectRecord | None:
    """Returns the record after one more answer. `target` is None if the answer was no permanent redirect."""
    if target is None:
        return None
    if before is None or before.url != target:
        return RedirectRecord(target, 1, now)
    return RedirectRecord(target, before.count + 1, before.since)


class ConnectionCounts(msgspec.Struct, frozen=True):
    """Fetches of the last minute: how many connected, how many did not, and to how many sites."""

    connected: int
    failed: int
    failed_sites: int

    @property
    def network_down(self) -> bool:
        """True if no fetch connected, and enough of them failed to blame our own network."""
        return not self.connected and self.failed >= OUTAGE_FETCHES and self.failed_sites >= OUTAGE_SITES
