"""A forecast compared with real calls: each asks the pool and waits as long as the pool says."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemill.core import accounts
from tidemill.core.accounts import Account, UnitGrant
from tidemill.core.forecast.backlog import CallGroup, LaneBacklog
from tidemill.core.forecast.completion import ForecastRequest, completion_times
from tidemill.core.forecast.pool_outlook import PoolOutlook
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import PoolSettings
from tidemill.core.reservations import UnitRequest
from tidemill.core.windows import Instant

NOW = Instant(1_777_593_600.0, 5_000.0)


def later(seconds: float) -> Instant:
    return Instant(NOW.wall + seconds, NOW.boot + seconds)


def simulated(pool: PoolSettings, account: Account, calls: int, units: float) -> float:
    """Returns the seconds until the last call starts, each as soon as the pool admits it."""
    now = 0.0
    for number in range(calls):
        ask = UnitRequest(f"{number}", {"tokens": units}, 5)
        while not isinstance(answer := accounts.request_units(pool, account, ask, later(now)), UnitGrant):
            account, now = answer.account, now + max(answer.wait, 1e-4)
        account = answer.account
    return now


def taken_now(pool: PoolSettings, calls: int, units: float) -> Account:
    """Returns the account after as many of the calls as the pool admits at once."""
    account = Account()
    for number in range(calls):
        answer = accounts.request_units(
            pool, account, UnitRequest(f"before {number}", {"tokens": units}, 5), NOW
        )
        if isinstance(answer, UnitGrant):
            account = answer.account
    return account


def forecast(pool: PoolSettings, account: Account, calls: int, units: float) -> float:
    known = PoolOutlook(
        name="api", key=None, declared=pool, override=None, account=account, now=NOW, settings=pool
    )
    work = CallGroup(float(calls), (Need("api", None, {"tokens": units}),))
    [[end]] = completion_times(
        ForecastRequest(lines=[LaneBacklog(work=(work,), priority=5)], know=lambda _: known)
    )
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
    before=st.integers(0, 6),
)
@example(Limit.tokens(12, per="minute", shape="paced"), 2, 1.0, 1)
@example(Limit.tokens(600, per="minute", shape="paced"), 8, 2.0, 5)
def test_calls_start_when_the_forecast_says(limit: Limit, calls: int, units: float, before: int) -> None:
    pool = PoolSettings(limits=(limit,))
    account = taken_now(pool, before, units)
    expected = simulated(pool, account, calls, units)
    assert forecast(pool, account, calls, units) == pytest.approx(expected, rel=0.02, abs=0.7)
