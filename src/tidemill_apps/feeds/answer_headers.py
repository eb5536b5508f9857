"""Reads when the next request is welcome: Retry-After, x-ratelimit-reset and Cache-Control."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

MAX_WAIT_SECONDS = 366 * 86_400.0
"""Longer waits are cut to this, so that no number of a server overflows a date."""
_EPOCH_FROM = 1_000_000_000.0
"""A reset at or above this number is a time since 1970; a smaller one is a number of seconds."""
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{0,9})?")
_MAX_AGE = re.compile(r"(?:^|,)\s*max-age\s*=\s*\"?([0-9]{1,15})\"?\s*(?=,|$)", re.IGNORECASE)
_UNCACHED = re.compile(r"(?:^|,)\s*(?:no-cache|no-store)\s*(?=,|$)", re.IGNORECASE)
_TOO_MANY_REQUESTS = 429


def retry_after(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """Returns the seconds that the server asks to wait, or None if it does not ask.

    Without Retry-After, x-ratelimit-reset counts if the answer is a 429 or no request remains. `headers` have
    lower-case names; `now` is the wall time."""
    clock = _http_date(headers.get("date", "")) or now
    value = headers.get("retry-after", "").strip()
    if (seconds := _number(value)) is not None:
        return min(seconds, MAX_WAIT_SECONDS)
    if (moment := _http_date(value)) is not None:
        return _until(moment, clock)
    remaining = _number(headers.get("x-ratelimit-remaining", ""))
    if status != _TOO_MANY_REQUESTS and (remaining is None or remaining >= 1):
        return None
    reset = _number(headers.get("x-ratelimit-reset", ""))
    if reset is None:
        return None
    return _until(reset, clock) if reset >= _EPOCH_FROM else min(reset, MAX_WAIT_SECONDS)


def max_age(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds for which Cache-Control calls the answer fresh, or None if it does not say."""
    value = headers.get("cache-control", "")
    if _UNCACHED.search(value) or (found := _MAX_AGE.search(value)) is None:
        return None
    return min(float(found[1]), MAX_WAIT_SECONDS)


def _until(moment: float, now: float) -> float:
    return min(max(0.0, moment - now), MAX_WAIT_SECONDS)


def _number(value: str) -> float | None:
    return float(value) if _NUMBER.fullmatch(value := value.strip()) else None


def _http_date(value: str) -> float | None:
    try:
        moment = parsedate_to_datetime(value.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
