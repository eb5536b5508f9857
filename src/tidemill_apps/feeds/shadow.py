"""Compares another scheduler's log with the decisions of this application. Fetches nothing."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from statistics import median
from typing import Literal

import msgspec

from tidemill_apps.feeds.due_times import MINUTE_SECONDS, WaitHints, next_after_failure, next_after_success

MISSED_INTERVALS = 2.0
"""A start that is later than its due time by this many intervals counts as a missed refresh."""


class ShadowEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One line of the other scheduler's log."""

    feed_id: str
    due_at: datetime
    started_at: datetime | None = None
    status: Literal["success", "failed"] | None = None


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The comparison. Lags and differences are seconds. `old` is the other scheduler; a difference is its
    start minus the time at which this application starts the same run.

    - `missed`: runs that never started, or started two intervals late or later.
    - `early`: runs that started before this application starts them."""

    feeds: int
    runs: int
    missed: int
    early: int
    failed: int
    error_rate: float
    median_lag: float
    longest_lag: float
    median_difference: float
    longest_difference: float


def read_log(lines: Iterable[str]) -> list[ShadowEntry]:
    """Returns the entries of a log in JSON lines. Raises ValueError with the line's number if one is
    invalid."""
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=ShadowEntry))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            fields = '{"feedId": …, "dueAt": …, "startedAt": …, "status": …}'
            raise ValueError(f"line {number}: must be {fields}, is not: {error}; mend the line") from None
    return found


def compare(entries: Sequence[ShadowEntry], interval_minutes: int) -> ShadowReport:
    """Compares the log with the due times that this application computes from the same outcomes."""
    interval = interval_minutes * MINUTE_SECONDS
    by_feed: defaultdict[str, list[ShadowEntry]] = defaultdict(list)
    for entry in entries:
        by_feed[entry.feed_id].append(entry)
    lags: list[float] = []
    differences: list[float] = []
    for runs in by_feed.values():
        runs.sort(key=lambda entry: entry.due_at)
        lags += [(run.started_at - run.due_at).total_seconds() for run in runs if run.started_at is not None]
        differences += _start_differences(runs, interval)
    missed = [entry for entry in entries if entry.started_at is None]
    late = [lag for lag in lags if lag >= MISSED_INTERVALS * interval]
    longest = max(differences, key=abs, default=0.0)
    failed = sum(entry.status == "failed" for entry in entries)
    return ShadowReport(
        feeds=len(by_feed),
        runs=len(entries),
        missed=len(missed) + len(late),
        early=sum(difference < 0 for difference in differences),
        failed=failed,
        error_rate=round(failed / len(entries), 4) if entries else 0.0,
        median_lag=round(median(lags), 3) if lags else 0.0,
        longest_lag=round(max(lags, default=0.0), 3),
        median_difference=round(median(differences), 3) if differences else 0.0,
        longest_difference=round(longest, 3),
    )


def _start_differences(runs: Sequence[ShadowEntry], interval: float) -> list[float]:
    """Returns, for each run after the first, its start minus the start that this application chooses."""
    found, failures = [], 0
    for before, after in itertools.pairwise(runs):
        if before.started_at is None or after.started_at is None:
            continue
        ended = before.started_at.timestamp()
        failures = failures + 1 if before.status == "failed" else 0
        planned = (
            next_after_failure(ended, interval, failures)
            if failures
            else next_after_success(ended, interval, WaitHints())
        )
        found.append(after.started_at.timestamp() - planned.at)
    return found
