"""A forecast against the calls themselves: each asks the pool, and waits for as long as the pool says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core import accounts
from tidemill.core.accounts import Account, Taken
from tidemill.core.forecast.answer import ends
from tidemill.core.forecast.known import Known
from tidemill.core.forecast.lines import Line, Work
from tidemill.core.forecast.meeting import Asked
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import PoolSettings
from tidemill.core.reserving import Ask
from tidemill.core.windows import Instant

NOW = Instant(1_777_593_600.0, 5_000.0)


def later(seconds: float) -> Instant:
    return Instant(NOW.wall + seconds, NOW.boot + seconds)


def simulated(pool: PoolSettings, account: Account, calls: int, units: float) -> float:
    """Seconds until the last call starts, each as soon as the pool lets it."""
    now = 0.0
    for number in range(calls):
        ask = Ask(f"{number}", {"tokens": units}, 5)
        while not isinstance(answer := accounts.ask(pool, account, ask, later(now)), Taken):
            account, now = answer.account, now + max(answer.wait, 1e-4)
        account = answer.account
    return now


def forecast(pool: PoolSettings, account: Account, calls: int, units: float) -> float:
    known = Known(name="api", key=None, declared=pool, override=None, account=account, now=NOW, settings=pool)
    work = Work(float(calls), (Need("api", None, {"tokens": units}),))
    [[end]] = ends(Asked(lines=[Line(work=(work,), priority=5)], know=lambda _: known))
    return end


@settings(deadline=None, max_examples=30)
@given(
    limit=st.sampled_from(
        [
            Limit.tokens(12, per="minute", shape="paced"),
            Limit.tokens(60, per="minute", shape="paced"),
            Limit.tokens(600, per="minute", shape="paced"),
            Limit.tokens(30, per=7.0, shape="paced"),
            Limit.tokens(40, per="minute"),
            Limit.tokens(30, per="minute", shape="bucket", charge="reserved"),
        ]
    ),
    calls=st.integers(2, 80),
    units=st.sampled_from([1.0, 2.0, 5.0]),
)
def test_calls_start_when_the_forecast_says(limit: Limit, calls: int, units: float) -> None:
    pool = PoolSettings(limits=(limit,))
    expected = simulated(pool, Account(), calls, units)
    assert forecast(pool, Account(), calls, units) == pytest.approx(expected, rel=0.02, abs=0.7)
