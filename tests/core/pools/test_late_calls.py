"""Late requests: with any delays, no window of a provider exceeds its limit (I14)."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from itertools import count
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings, PoolState
from tidemill.core.reservations import (
    Reservation,
    ReservationGrant,
    UnitRequest,
    reenter_units,
    reserve_units,
    settle_reservation,
    take_unchecked,
)
from tidemill.core.windows import Guards, Instant

GUARDS = Guards(jitter=0.5)
AMOUNT, WINDOW = 5, 10.0
Shapes = Literal["rolling", "paced", "bucket"]
BOOT = "boot"


def calls(*delays: float) -> st.SearchStrategy[list[tuple[float, float, float]]]:
    return st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.0, 0.1, 1.0, 3.0]),  # until the next claim is tried
            st.sampled_from(delays),  # until the request leaves
            st.floats(0, GUARDS.jitter),  # the network delay
        ),
        max_size=60,
    )


def at(seconds: float) -> Instant:
    return Instant(1_000_000 + seconds, 1000 + seconds)


def arrivals(shape: Shapes, plan: list[tuple[float, float, float]], *, reported: bool) -> list[float]:
    """Claims as fast as the pool allows and returns the arrivals at the provider. With `reported`, a late
    request is reported when it leaves, before the next claim. The network delay is at most the jitter
    from the claim or from the reported departure."""
    pool = PoolSettings(limits=(Limit.requests(AMOUNT, per=WINDOW, shape=shape),), guards=GUARDS)
    state, now, arrived = PoolState(boot=BOOT), 0.0, list[float]()
    leaving: list[tuple[float, int, Reservation]] = []
    number = count()

    def leave(until: float) -> None:
        nonlocal state
        while leaving and leaving[0][0] <= until:
            when, _, kept = heapq.heappop(leaving)
            state = reenter_units(pool, state, kept, at(when)).state

    for gap, delay, way in plan:
        now += gap
        leave(now)
        while not isinstance(
            answer := reserve_units(pool, state, UnitRequest("job", {}, 0), at(now)), ReservationGrant
        ):
            now += answer.wait + 1e-6
            leave(now)
        state = answer.state
        late = delay > GUARDS.jitter / 2
        if late and reported:
            heapq.heappush(leaving, (now + delay, next(number), answer.reservation))
        arrived.append(now + delay + (way if late else way / 2))
    return sorted(arrived)


def most_in_a_window(arrived: list[float]) -> int:
    return max((bisect_right(arrived, t + WINDOW - 1e-9) - n for n, t in enumerate(arrived)), default=0)


@given(calls(0.0, 0.0, 0.2, 1.0, 4.0, 9.0))
@settings(max_examples=300, deadline=None)
@pytest.mark.parametrize("shape", ["rolling", "paced"])
def test_i14_late_requests_never_exceed_a_window(
    shape: Shapes, plan: list[tuple[float, float, float]]
) -> None:
    assert most_in_a_window(arrivals(shape, plan, reported=True)) <= AMOUNT


@given(calls(0.0, 0.0, 0.2, 1.0, 1.9))
@settings(max_examples=300, deadline=None)
def test_i14_late_requests_never_empty_the_providers_bucket(plan: list[tuple[float, float, float]]) -> None:
    """Holds within the 2 s in which a unit flows back. Later a bucket may have been full in between: ours
    no longer counts a call that has not reached the provider yet."""
    left, before = float(AMOUNT), 0.0
    for when in arrivals("bucket", plan, reported=True):
        left = min(AMOUNT, left + (when - before) * AMOUNT / WINDOW) - 1
        before = when
        assert left >= -1e-6


def test_i14_unreported_late_requests_exceed_a_window() -> None:
    """Otherwise the tests above could not fail."""
    late = [(0.0, 4.0, 0.5)] * AMOUNT + [(0.0, 0.0, 0.0)] * AMOUNT
    assert most_in_a_window(arrivals("rolling", late, reported=False)) > AMOUNT
    assert most_in_a_window(arrivals("rolling", late, reported=True)) <= AMOUNT


def test_the_refund_of_a_late_call_is_taken_from_its_new_position() -> None:
    pool = PoolSettings(limits=(Limit.tokens(100, per=WINDOW),), guards=GUARDS)
    granted = reserve_units(pool, PoolState(boot=BOOT), UnitRequest("job", {"tokens": 60}, 0), at(0))
    assert isinstance(granted, ReservationGrant)
    moved = reenter_units(pool, granted.state, granted.reservation, at(4))
    state = settle_reservation(pool, moved.state, moved.reservation, {"tokens": 10}, at(5))
    (limit,) = pool.limits
    assert state.counted(limit, at(5), GUARDS) == 10
    assert state.counted(limit, at(14), GUARDS) == 10
    assert state.counted(limit, at(15), GUARDS) == 0


def test_an_extra_request_may_exceed_the_limit() -> None:
    pool = PoolSettings(limits=(Limit.requests(1, per=WINDOW),), guards=GUARDS)
    state = PoolState(boot=BOOT)
    for _ in range(3):
        state = take_unchecked(pool, state, {"requests": 1.0}, at(0)).state
    (limit,) = pool.limits
    assert state.counted(limit, at(1), GUARDS) == 3
    assert state.room(limit, at(1), GUARDS) == -2
