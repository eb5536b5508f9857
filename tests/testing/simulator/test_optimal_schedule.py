"""Checks T_opt by hand, and that its schedule is safe under every delay and cannot be faster."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.testing.simulator import Quota, SimulatorOptions, optimal_drain_seconds, optimal_send_times
from tidemill.testing.simulator.account import SimulatedAccount
from tidemill.testing.simulator.http_messages import SimulatorCall
from tidemill.testing.simulator.quotas import to_ticks

CALL = SimulatorCall(kind="chat", model="m", input_tokens=1)


@pytest.mark.parametrize(
    ("quotas", "calls", "more", "seconds"),
    [
        ([Quota.rolling("requests", 10)], 10, {}, 0.0),
        ([Quota.rolling("requests", 10)], 11, {}, 60.5),
        ([Quota.rolling("requests", 10)], 101, {}, 605.0),
        ([Quota.rolling("requests", 10)], 101, {"latency": 2.0}, 607.0),
        ([Quota.rolling("requests", 10)], 11, {"guard": 0.0}, 60.0),
        ([Quota.rolling("requests", 2)], 2, {"before": [-10, -3]}, 57.5),
        ([Quota.rolling("tokens", 1000)], 5, {"cost": {"tokens": 300}}, 60.5),
        ([Quota.bucket("requests", 10)], 10, {}, 0.0),
        ([Quota.bucket("requests", 10)], 11, {}, 6.5),
        ([Quota.bucket("requests", 10)], 110, {}, 600.5),
        ([Quota.bucket("requests", 60, interval=1)], 2, {}, 1.5),
        ([Quota.bucket("requests", 60, interval=1)], 61, {}, 90.0),
        ([Quota.bucket("tokens", 600)], 3, {"cost": {"tokens": 400}}, 60.5),
        ([Quota.concurrent(3)], 9, {"latency": 4.0}, 12.0),
        ([Quota.concurrent(3)], 10, {"latency": 4.0}, 16.0),
        ([Quota.day("requests", 5)], 11, {"wall": 80_000}, 6_400.0 + 86_400),
        ([Quota.day("requests", 5)], 6, {"wall": 86_399.8}, 86_400.2),
        ([Quota.period("requests", 5, per=100)], 11, {}, 201.0),
        ([Quota.rolling("requests", 10), Quota.concurrent(1)], 20, {"latency": 7.0}, 140.0),
        ([Quota.rolling("requests", 10), Quota.concurrent(1)], 11, {"latency": 1.0}, 61.5),
        ([Quota.rolling("requests", 3, per=1), Quota.rolling("requests", 100)], 101, {}, 60.5),
    ],
)
def test_by_hand(quotas: list[Quota], calls: int, more: dict[str, object], seconds: float) -> None:
    assert optimal_drain_seconds(quotas, calls, **more) == pytest.approx(seconds, abs=1e-6)  # type: ignore[arg-type]


def test_a_day_in_los_angeles_is_25_hours_long_once_a_year() -> None:
    night = 1_793_516_400.0  # 2026-11-01 00:00 in Los Angeles
    quota = Quota.day("requests", 5, zone="America/Los_Angeles")
    assert optimal_drain_seconds([quota], 6, wall=night) == 25 * 3600
    assert optimal_drain_seconds([quota], 11, wall=night) == 49 * 3600


def test_a_cost_over_the_quota_is_an_error() -> None:
    with pytest.raises(ValueError, match="never fit"):
        optimal_drain_seconds([Quota.bucket("tokens", 10)], 1, cost={"tokens": 11})
    with pytest.raises(ValueError, match="never fit"):
        optimal_drain_seconds([Quota.rolling("tokens", 10)], 1, cost={"tokens": 11})
    with pytest.raises(ValueError, match="before"):
        optimal_drain_seconds([Quota.rolling("requests", 1)], 1, before=[1])


one_quota = st.one_of(
    st.builds(Quota.rolling, st.just("requests"), st.integers(1, 6), per=st.sampled_from([1.0, 7.0, 60.0])),
    st.builds(
        Quota.bucket,
        st.just("requests"),
        st.integers(1, 60),
        per=st.sampled_from([7.0, 60.0]),
        interval=st.sampled_from([None, 1.0, 2.5]),
    ),
    st.builds(Quota.day, st.just("requests"), st.integers(1, 6), zone=st.just("Asia/Shanghai")),
)
MIDNIGHT = 1_893_427_200.0  # in Shanghai


def refused(quotas: list[Quota], arrivals: list[float], wall: float) -> int:
    account = SimulatedAccount(quotas, SimulatorOptions(), wall=wall)
    for at in sorted(arrivals):
        account.arrive(CALL, to_ticks(at))
    return len(account.request_log.refusals)


@settings(max_examples=150)
@given(
    st.lists(one_quota, min_size=1, max_size=3, unique_by=lambda quota: quota.name),
    st.integers(1, 25),
    st.lists(st.floats(0, 0.5), min_size=25, max_size=25),
    st.sampled_from([0.0, 0.3, 1.0, 40.0, 5000.0]),
)
def test_the_optimal_schedule_is_never_refused_at_any_delay(
    quotas: list[Quota], calls: int, delays: list[float], left_of_the_day: float
) -> None:
    wall = MIDNIGHT - left_of_the_day
    sends = optimal_send_times(quotas, calls, wall=wall)
    assert refused(quotas, [at + delay for at, delay in zip(sends, delays, strict=False)], wall) == 0
    assert refused(quotas, [at + 0.5 for at in sends], wall) == 0
    assert refused(quotas, sends, wall) == 0


@settings(max_examples=150)
@given(one_quota, st.integers(2, 25), st.sampled_from([0.0, 0.3, 1.0, 40.0]))
def test_no_call_could_be_sent_any_earlier(quota: Quota, calls: int, left_of_the_day: float) -> None:
    """Moves one call earlier and delays all calls before it in the worst way: there is a refusal."""
    wall = MIDNIGHT - left_of_the_day
    sends = optimal_send_times([quota], calls, wall=wall)
    for number in range(1, calls):
        if sends[number] == sends[number - 1]:
            continue
        early = sends[number] - 1e-4
        latest = [min(at + 0.5, max(early, at)) for at in sends[:number]]
        assert refused([quota], [*latest, early], wall) > 0, (number, sends[: number + 1])
