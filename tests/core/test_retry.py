"""Retry policies."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.jobs import PRIORITY_RANGE
from tidemill.core.retry import (
    NO_RETRY,
    BackoffShape,
    Matchers,
    Retry,
    backoff_seconds,
    decide_retry,
    is_retryable,
)

FAILURE = ValueError("oops")


@pytest.mark.parametrize(
    ("shape", "waits"),
    [("fixed", [5, 5, 5, 5]), ("linear", [5, 10, 15, 20]), ("exponential", [5, 15, 45, 50])],
)
def test_the_wait_grows_by_its_shape_up_to_the_cap(shape: BackoffShape, waits: list[float]) -> None:
    policy = Retry(first=5, factor=3, cap=50, shape=shape)
    assert [backoff_seconds(policy, attempt) for attempt in (1, 2, 3, 4)] == waits


def test_a_duration_may_be_a_timedelta() -> None:
    policy = Retry(first=timedelta(minutes=1), cap=timedelta(minutes=3))
    assert policy.problem() is None
    assert [backoff_seconds(policy, attempt) for attempt in (1, 2, 3)] == [60, 120, 180]


@pytest.mark.parametrize("shape", ["fixed", "linear", "exponential"])
def test_a_huge_attempt_number_waits_for_the_cap_at_most(shape: BackoffShape) -> None:
    policy = Retry(first=1.0, factor=10, cap=60.0, shape=shape)  # people write an int
    assert backoff_seconds(policy, 10**9) == (1.0 if shape == "fixed" else 60.0)
    assert backoff_seconds(Retry(first=0.0, factor=10.0, shape=shape), 10**9) == 0.0


@given(
    policy=st.builds(
        Retry,
        attempts=st.integers(21, 40),
        first=st.floats(0, 100),
        factor=st.floats(1, 5),
        cap=st.floats(0, 1000),
        shape=st.sampled_from(("fixed", "linear", "exponential")),
        jitter=st.floats(0, 1),
        priority_penalty=st.integers(0, 50_000),
    ),
    attempt=st.integers(1, 20),
    priority=st.integers(*PRIORITY_RANGE),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_a_decision_waits_no_less_than_the_policy_and_stays_in_range(
    policy: Retry, attempt: int, priority: int, chance: float
) -> None:
    decision = decide_retry(policy, FAILURE, attempt, priority, chance)
    wait = backoff_seconds(policy, attempt)
    assert decision.delay is not None
    assert wait <= decision.delay <= wait * (1 + policy.jitter)
    assert decision.priority == min(priority + policy.priority_penalty, PRIORITY_RANGE[1])


@given(attempts=st.integers(1, 20), more=st.integers(0, 10), priority=st.integers(*PRIORITY_RANGE))
def test_there_is_no_retry_after_the_last_attempt(attempts: int, more: int, priority: int) -> None:
    decision = decide_retry(
        Retry(attempts=attempts, priority_penalty=3), FAILURE, attempts + more, priority, 0.5
    )
    assert (decision.delay, decision.priority) == (None, priority)


def test_the_penalty_stops_at_the_least_urgent_priority() -> None:
    last = PRIORITY_RANGE[1]
    assert decide_retry(Retry(priority_penalty=2), FAILURE, 1, last - 1, 0.0).priority == last


def test_attempts_count_the_first_run() -> None:
    policy = Retry(attempts=3, jitter=0)
    delays = [decide_retry(policy, FAILURE, attempt, 5, 0.5).delay for attempt in (1, 2, 3)]
    assert delays == [5.0, 10.0, None]
    assert decide_retry(NO_RETRY, FAILURE, 1, 5, 0.5).delay is None


def test_each_retry_is_less_urgent_by_the_penalty() -> None:
    policy = Retry(priority_penalty=2)
    assert decide_retry(policy, FAILURE, 1, 5, 0.0).priority == 7


def test_errors_are_matched_by_type_and_by_predicate() -> None:
    policy = Retry(on=(OSError, lambda error: "again" in str(error)), give_up_on=(FileNotFoundError,))
    errors: list[tuple[BaseException, bool]] = [
        (OSError("disk"), True),
        (FileNotFoundError("a subclass, but given up on"), False),
        (ValueError("try again"), True),
        (ValueError("no"), False),
    ]
    assert [is_retryable(policy, error) for error, _ in errors] == [worth for _, worth in errors]
    assert is_retryable(Retry(), FAILURE)


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (Retry(attempts=0), "retry.attempts"),
        (Retry(factor=0.5), "retry.factor"),
        (Retry(first=-1), "retry.first"),
        (Retry(cap=float("inf")), "retry.cap"),
        (Retry(jitter=float("nan")), "retry.jitter"),
        (Retry(priority_penalty=-1), "retry.priority_penalty"),
        (Retry(shape="wavy"), "retry.shape"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_policy_names_the_field(policy: Retry, field: str) -> None:
    problem = policy.problem()
    assert problem is not None
    assert problem.startswith(field)
    assert Retry().problem() is None


@pytest.mark.parametrize(
    "given", [ValueError, (ValueError,), [ValueError], lambda error: "oops" in str(error)]
)
def test_a_single_matcher_needs_no_tuple(given: Matchers) -> None:
    assert Retry(on=given).problem() is None
    assert is_retryable(Retry(on=given), FAILURE)
    assert not is_retryable(Retry(on=given), KeyError("other"))
    assert not is_retryable(Retry(give_up_on=given), FAILURE)
    assert is_retryable(Retry(give_up_on=given), KeyError("other"))
