"""Odd values of Retry-After, x-ratelimit-reset and Cache-Control never delay a feed wrongly."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from tidemill_apps.feeds.answer_headers import MAX_WAIT_SECONDS, max_age, retry_after

NOW = 1_795_000_000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 120 ", 120.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("999999999999999", MAX_WAIT_SECONDS),
        ("9" * 400, None),
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW + 90).replace("-0000", "+0000"), 90.0),
        (formatdate(NOW - 90, usegmt=True), 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_WAIT_SECONDS),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("-5", None),
        ("+5", None),
        ("1e3", None),
        ("nan", None),
        ("inf", None),
        ("٣", None),
        ("soon", None),
        ("", None),
        ("60, 120", None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after(503, {"retry-after": value}, NOW) == seconds


def test_a_date_counts_from_the_clock_of_the_server() -> None:
    """Our clock may be wrong by minutes."""
    headers = {"retry-after": formatdate(NOW + 360, usegmt=True), "date": formatdate(NOW + 300, usegmt=True)}
    assert retry_after(429, headers, NOW) == 60.0


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"x-ratelimit-reset": "45"}, 45.0),
        (429, {"x-ratelimit-reset": "45.25"}, 45.25),
        (429, {"x-ratelimit-reset": str(int(NOW) + 30)}, 30.0),
        (429, {"x-ratelimit-reset": str(int(NOW) - 30)}, 0.0),
        (429, {"x-ratelimit-reset": "soon"}, None),
        (429, {"retry-after": "10", "x-ratelimit-reset": "45"}, 10.0),
        (200, {"x-ratelimit-reset": "45", "x-ratelimit-remaining": "0.0"}, 45.0),
        (200, {"x-ratelimit-reset": "45", "x-ratelimit-remaining": "99"}, None),
        (200, {"x-ratelimit-reset": "45"}, None),
        (503, {"x-ratelimit-reset": "45"}, None),
        (429, {}, None),
    ],
)
def test_rate_limit_reset(status: int, headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(status, headers, NOW) == seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("max-age=300", 300.0),
        ("public, MAX-AGE = 300 , must-revalidate", 300.0),
        ('max-age="300"', 300.0),
        ("max-age=0", 0.0),
        ("max-age=999999999999999", MAX_WAIT_SECONDS),
        ("max-age=" + "9" * 400, None),
        ("s-maxage=300", None),
        ("x-max-age=300", None),
        ("max-age=-1", None),
        ("max-age", None),
        ("max-age=300, no-cache", None),
        ("no-store,max-age=300", None),
        ("private", None),
        ("", None),
    ],
)
def test_max_age(value: str, seconds: float | None) -> None:
    assert max_age({"cache-control": value}) == seconds
