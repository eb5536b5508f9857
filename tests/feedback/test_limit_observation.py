"""The provider's limits are matched with ours by unit and window, or left out."""

from __future__ import annotations

import pytest

from tidemill.core.calendars import Day, Month
from tidemill.core.feedback import Reason, Refusal
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings
from tidemill.feedback import ProviderFeedback, StatedLimit, build_observation, read_feedback

NOW = 1_800_000_000.0
OPENAI = PoolSettings(
    limits=(
        Limit.requests(500, per="minute"),
        Limit.requests(10_000, per=Day("UTC")),
        Limit.tokens(30_000, per="minute"),
        Limit.concurrent(5),
    )
)


def openai(unit: str, limit: int, remaining: int, reset: str) -> dict[str, str]:
    prefix = "x-ratelimit"
    return {
        f"{prefix}-limit-{unit}": str(limit),
        f"{prefix}-remaining-{unit}": str(remaining),
        f"{prefix}-reset-{unit}": reset,
    }


def seen(*stated: StatedLimit, pool: PoolSettings = OPENAI) -> tuple[dict[str, float], dict[str, float]]:
    found = build_observation("pool", pool, ProviderFeedback(stated=stated))
    return dict(found.remaining), dict(found.amounts)


def test_the_requests_header_can_be_the_days() -> None:
    headers = openai("requests", 10_000, 9_999, "8.64s") | openai("tokens", 30_000, 29_000, "2s")
    found = build_observation("openai", OPENAI, read_feedback((200, headers, {}), now=NOW), key="eu")
    assert (found.pool, found.key, found.refusal) == ("openai", "eu", None)
    assert found.remaining == {"requests per day": 9_999, "tokens per minute": 29_000}
    assert found.amounts == {"requests per day": 10_000, "tokens per minute": 30_000}


def test_the_days_header_says_nothing_to_a_pool_that_counts_minutes() -> None:
    pool = PoolSettings(limits=(Limit.requests(500, per="minute"),))
    headers = openai("requests", 10_000, 9_999, "8.64s")
    assert build_observation("p", pool, read_feedback((200, headers, {}), now=NOW)).remaining == {}


def test_without_a_window_only_the_same_amount_tells() -> None:
    assert seen(StatedLimit(unit="requests", limit=500, remaining=500)) == (
        {"requests per minute": 500},
        {"requests per minute": 500},
    )
    assert seen(StatedLimit(unit="requests", limit=600, remaining=600)) == ({}, {})
    assert seen(StatedLimit(unit="requests", remaining=3)) == ({}, {})


def test_windows_and_calendars() -> None:
    pool = PoolSettings(limits=(Limit.usd(50, per=Month("UTC")), Limit.requests(9, per=30)))
    assert seen(StatedLimit(unit="usd", window=30 * 86_400, remaining=4), pool=pool)[0] == {
        "usd per month": 4
    }
    assert seen(StatedLimit(unit="requests", window=30, remaining=4), pool=pool)[0] == {
        "requests per 30 s": 4
    }
    assert seen(StatedLimit(unit="requests", window=60, remaining=4), pool=pool)[0] == {}
    assert seen(StatedLimit(unit="concurrent", window=0, limit=4, remaining=1)) == (
        {"calls at once": 1},
        {"calls at once": 4},
    )


def test_of_two_states_the_lower_counts_and_no_limit_is_zero() -> None:
    high = StatedLimit(unit="tokens", window=60, limit=30_000, remaining=900)
    low = StatedLimit(unit="tokens", window=60, limit=20_000, remaining=3)
    assert seen(high, low) == ({"tokens per minute": 3}, {"tokens per minute": 20_000})
    assert seen(StatedLimit(unit="tokens", window=60, limit=0, remaining=0)) == ({"tokens per minute": 0}, {})


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("tokens", "tokens"), ("input_tokens", "tokens"), ("characters", None), (None, None)],
)
def test_a_refusal_speaks_of_a_unit_the_pool_counts(unit: str | None, expected: str | None) -> None:
    refusal = Refusal(reason=Reason.RATE, unit=unit)
    found = build_observation("p", OPENAI, ProviderFeedback(refusal=refusal)).refusal
    assert found is not None
    assert found.unit == expected


def test_tokens_may_be_either_of_two() -> None:
    pool = PoolSettings(
        limits=(Limit.of("input_tokens", 9, per="minute"), Limit.of("output_tokens", 9, per="minute"))
    )
    found = build_observation(
        "p", pool, ProviderFeedback(refusal=Refusal(reason=Reason.RATE, unit="tokens"))
    ).refusal
    assert found is not None
    assert found.unit is None


def test_when_a_limit_is_whole_again_is_kept() -> None:
    headers = openai("requests", 500, 0, "1m30s") | openai("tokens", 30_000, 29_000, "2s")
    found = build_observation("openai", OPENAI, read_feedback((429, headers, {}), now=NOW))
    assert found.resets == {"requests per minute": NOW + 90, "tokens per minute": NOW + 2}
