"""Refusals and limits of any HTTP server: status, Retry-After and RateLimit headers."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from tidemill.core.feedback import Reason, Refusal
from tidemill.feedback import StatedLimit, read_feedback
from tidemill.feedback.classification import _severity
from tidemill.feedback.generic_http import MAX_WAIT_SECONDS

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, Reason.FORBIDDEN),
        (402, Reason.SPENDING),
        (403, Reason.FORBIDDEN),
        (413, Reason.TOO_LARGE),
        (429, Reason.UNKNOWN),
        (503, Reason.OVERLOAD),
        (529, Reason.OVERLOAD),
        (200, None),
        (400, None),
        (404, None),
        (500, None),
        (502, None),
        (504, None),
    ],
)
def test_the_status_alone(status: int, expected: Reason | None) -> None:
    found = read_feedback((status, {}, ""), now=NOW).refusal
    assert (found and found.reason) == expected


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "120"}, 120),
        ({"RETRY-AFTER": " 0 "}, 0),
        ({"retry-after": "1.5"}, 1.5),
        ({"Retry-After": "Mon, 16 Nov 2026 12:02:00 GMT"}, 120),
        ({"Retry-After": "Mon, 16 Nov 2026 11:00:00 GMT"}, 0),
        # The Date header shows that the server's clock is an hour ahead.
        ({"Retry-After": "Mon, 16 Nov 2026 13:02:00 GMT", "Date": "Mon, 16 Nov 2026 13:00:00 GMT"}, 120),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "1e9"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "999999999999"}, 366 * 86_400),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    found = read_feedback((429, headers, ""), now=NOW).refusal
    assert found is not None
    assert found.retry_after == seconds
    assert (found.reason is Reason.UNKNOWN) == (seconds is None)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-reset": "60"}, 60),
        ({"ratelimit-reset": "60"}, 60),
        ({"X-RateLimit-Reset": f"{NOW + 60:.0f}"}, 60),
        ({"X-RateLimit-Reset": f"{(NOW + 60) * 1000:.0f}"}, 60),
        ({"X-RateLimit-Reset": f"{NOW - 60:.0f}"}, 0),
        ({"x-ratelimit-reset": "60", "x-ratelimit-remaining": "0"}, 60),
        ({"x-ratelimit-reset": "60", "x-ratelimit-remaining": "7"}, None),
        ({"x-ratelimit-reset": "60", "retry-after": "5"}, 5),
        ({"x-ratelimit-reset": "soon"}, None),
    ],
)
def test_a_reset_header_without_other_headers(headers: dict[str, str], seconds: float | None) -> None:
    """The header has seconds, or a Unix time in seconds or milliseconds."""
    found = read_feedback((429, headers, ""), now=NOW).refusal
    assert found is not None
    assert found.retry_after == seconds
    assert (found.reason is Reason.UNKNOWN) == (seconds is None)
    assert read_feedback((200, headers, ""), now=NOW).refusal is None


def test_a_long_hint_is_a_stated_reset() -> None:
    found = read_feedback((429, {"retry-after": "7200"}, ""), now=NOW).refusal
    assert found is not None
    assert (found.reason, found.retry_after) == (Reason.STATED, 7200)


@pytest.mark.parametrize(
    ("headers", "stated"),
    [
        (
            {"RateLimit": '"default";r=50;t=30', "RateLimit-Policy": '"default";q=100;w=60'},
            [StatedLimit(unit="requests", window=60, limit=100, remaining=50, resets_at=NOW + 30)],
        ),
        (
            {
                "ratelimit": '"burst";r=3, "daily";r=900;t=3600',
                "ratelimit-policy": '"burst";q=10;w=1,"daily";q=1000;w=86400',
            },
            [
                StatedLimit(unit="requests", window=1, limit=10, remaining=3),
                StatedLimit(unit="requests", window=86_400, limit=1000, remaining=900, resets_at=NOW + 3600),
            ],
        ),
        (
            {"RateLimit": '"peak";r=2', "RateLimit-Policy": '"peak";q=5;qu="concurrent-requests"'},
            [StatedLimit(unit="concurrent", window=0, limit=5, remaining=2)],
        ),
        (
            {"RateLimit": "limit=100, remaining=50, reset=5", "RateLimit-Policy": "100;w=60"},
            [StatedLimit(unit="requests", window=60, limit=100, remaining=50, resets_at=NOW + 5)],
        ),
        (
            {"RateLimit-Limit": "100, 100;w=60", "RateLimit-Remaining": "7", "RateLimit-Reset": "5"},
            [StatedLimit(unit="requests", limit=100, remaining=7, resets_at=NOW + 5)],
        ),
        (
            {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "7", "X-RateLimit-Reset": f"{NOW + 5:.0f}"},
            [StatedLimit(unit="requests", limit=60, remaining=7, resets_at=NOW + 5)],
        ),
        ({"RateLimit": '"default";r=many;t=30'}, []),
        ({"RateLimit": '"default";;;=,,"'}, []),
        ({"RateLimit": '"a";r=-1'}, []),
        ({"RateLimit-Policy": '"default";q=100;w=60'}, []),
    ],
)
def test_ratelimit_in_every_spelling_and_malformed(
    headers: dict[str, str], stated: list[StatedLimit]
) -> None:
    assert list(read_feedback((200, headers, ""), now=NOW).stated) == stated


def test_retry_after_wins_over_ratelimit() -> None:
    limit = {"RateLimit": '"default";r=0;t=30'}
    alone = read_feedback((429, limit, ""), now=NOW).refusal
    both = read_feedback((429, {**limit, "Retry-After": "5"}, ""), now=NOW).refusal
    assert alone is not None
    assert both is not None
    assert (alone.retry_after, both.retry_after) == (30, 5)


@pytest.mark.parametrize("reset", [10**9, 10**14])
def test_a_reset_beyond_a_year_is_a_mistake_of_its_sender(reset: int) -> None:
    limits = (
        {"RateLimit": f'"default";r=0;t={reset}'},
        {"RateLimit": f"limit=100, remaining=0, reset={reset}"},
        {"RateLimit-Limit": "100", "RateLimit-Remaining": "0", "RateLimit-Reset": f"{reset}"},
    )
    for headers in limits:
        [stated] = read_feedback((200, headers, None), now=0.0).stated
        assert stated.resets_at is None or stated.resets_at <= MAX_WAIT_SECONDS


@pytest.mark.parametrize("status", [401, 402, 403, 413, 503, 529])
@pytest.mark.parametrize("after", ["5", "100000"])
def test_a_hint_changes_no_reason_that_the_status_says(status: int, after: str) -> None:
    alone, hinted = (
        read_feedback((status, headers, ""), now=NOW).refusal for headers in ({}, {"Retry-After": after})
    )
    assert alone is not None
    assert hinted is not None
    assert (hinted.reason, hinted.retry_after) == (alone.reason, float(after))


@pytest.mark.parametrize("waits", [("5", "60", "30"), ("60", "5", "30")])
def test_of_several_refusals_of_one_kind_the_longest_wait_counts(waits: tuple[str, ...]) -> None:
    def refused(after: str) -> Exception:
        error = Exception("refused")
        error.response = SimpleNamespace(status_code=429, headers={"Retry-After": after})  # type: ignore[attr-defined]
        return error

    found = read_feedback(ExceptionGroup("several", [refused(after) for after in waits]), now=NOW).refusal
    assert found is not None
    assert found.retry_after == 60


def test_of_two_stated_resets_the_later_one_counts() -> None:
    early, late = (Refusal(reason=Reason.STATED, resets_at=NOW + seconds) for seconds in (60, 3600))
    assert max((late, early), key=_severity) is late
    assert max((early, late), key=_severity) is late
    assert _severity(Refusal(reason=Reason.STATED)) < _severity(early)
