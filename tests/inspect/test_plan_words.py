"""How a plan and its limits are told."""

from __future__ import annotations

import pytest

from tidemill.inspect.plan import LimitPlan, clock_time
from tidemill.inspect.words import quantity

NOVEMBER = 1_794_787_200.0  # 2026-11-16 00:00:00 UTC


@pytest.mark.parametrize(
    ("amount", "name", "said"),
    [
        (1, "requests per second", "1 request per second"),
        (10, "requests per 5 s", "10 requests per 5 s"),
        (1, "calls at once", "1 call at once"),
        (2_000_000, "tokens per minute", "2000000 tokens per minute"),
        (0.5, "usd per day", "0.5 usd per day"),
    ],
)
def test_a_limit_is_told_as_people_say_it(amount: float, name: str, said: str) -> None:
    assert quantity(amount, name) == said
    limit = LimitPlan(pool="site", key=None, name=name, amount=amount, zone=None, seconds=1.0)
    assert str(limit) == f"{said} of site"


def test_a_time_has_its_year_when_it_is_another_one() -> None:
    assert clock_time(NOVEMBER + 86_400, "UTC", NOVEMBER) == "Tue 17 Nov 00:00 UTC"
    assert clock_time(NOVEMBER + 701 * 86_400, "UTC", NOVEMBER) == "Tue 17 Oct 2028 00:00 UTC"
