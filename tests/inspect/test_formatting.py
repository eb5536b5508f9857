"""A plan and its limits as sentences."""

from __future__ import annotations

import pytest

from tidemill.inspect.formatting import format_quantity
from tidemill.inspect.plan import LimitPlan, format_clock_time

NOVEMBER = 1_794_787_200.0  # 2026-11-16 00:00:00 UTC


@pytest.mark.parametrize(
    ("amount", "name", "text"),
    [
        (1, "requests per second", "1 request per second"),
        (10, "requests per 5 s", "10 requests per 5 s"),
        (1, "calls at once", "1 call at once"),
        (2_000_000, "tokens per minute", "2000000 tokens per minute"),
        (0.5, "usd per day", "0.5 usd per day"),
    ],
)
def test_a_limit_is_written_in_singular_or_plural(amount: float, name: str, text: str) -> None:
    assert format_quantity(amount, name) == text
    limit = LimitPlan(pool="site", key=None, name=name, amount=amount, zone=None, seconds=1.0)
    assert str(limit) == f"{text} of site"


def test_a_time_has_its_year_if_it_is_not_this_year() -> None:
    assert format_clock_time(NOVEMBER + 86_400, "UTC", NOVEMBER) == "Tue 17 Nov 00:00 UTC"
    assert format_clock_time(NOVEMBER + 701 * 86_400, "UTC", NOVEMBER) == "Tue 17 Oct 2028 00:00 UTC"
