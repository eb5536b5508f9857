"""Retry policies."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.job import PRIORITY_RANGE
from tidemill.core.retry import NEVER, Matchers, Retry, Shape, decide, wait_before, worth_retrying

FAILURE = ValueError("oops")


@pytest.mark.parametrize(
    ("shape", "waits"),
    [("fixed", [5, 5, 5, 5]), ("linear", [5, 10, 15, 20]), ("exponential", [5, 15, 45, 50])],
)
def test_the_wait_grows_by_its_shape_up_to_the_cap(shape: Shape, waits: list[float]) -> None:
    policy = Retry(first=5, factor=3, cap=50, shape=shape)
    assert [wait_before(policy, attempt) for attempt in (1, 2, 3, 4)] == waits


def test_a_duration_may_be_a_timedelta() -> None:
    policy = Retry(first=timedelta(minutes=1), cap=timedelta(minutes=3))
    assert policy.problem() is None
    assert [wait_before(policy, attempt) for attempt in (1, 2, 3)] == [60, 120, 180]


@pytest.mark.parametrize("shape", ["fixed", "linear", "exponential"])
def test_a_huge_attempt_number_waits_for_the_cap_at_most(shape: Shape) -> None:
    policy = Retry(first=1.0, factor=10, cap=60.0, shape=shape)  # as people write it: an int
    assert wait_before(policy, 10**9) == (1.0 if shape == "fixed" else 60.0)
    assert wait_before(Retry(first=0.0, factor=10.0, shape=shape), 10**9) == 0.0


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
    decision = decide(policy, FAILURE, attempt, priority, chance)
    wait = wait_before(policy, attempt)
    assert decision.delay is not None
    assert wait <= decision.delay <= wait * (1 + policy.jitter)
    assert decision.priority == min(priority + policy.priority_penalty, PRIORITY_RANGE[1])


@given(attempts=st.integers(1, 20), more=st.integers(0, 10), priority=st.integers(*PRIORITY_RANGE))
def test_after_the_last_attempt_there_is_no_other(attempts: int, more: int, priority: int) -> None:
    decision = decide(Retry(attempts=attempts, priority_penalty=3), FAILURE, attempts + more, priority, 0.5)
    assert (decision.delay, decision.priority) == (None, priority)


def test_a_penalty_ends_at_the_least_urgent_priority() -> None:
    last = PRIORITY_RANGE[1]
    assert decide(Retry(priority_penalty=2), FAILURE, 1, last - 1, 0.0).priority == last


def test_attempts_count_the_first_run() -> None:
    policy = Retry(attempts=3, jitter=0)
    delays = [decide(policy, FAILURE, attempt, 5, 0.5).delay for attempt in (1, 2, 3)]
    assert delays == [5.0, 10.0, None]
    assert decide(NEVER, FAILURE, 1, 5, 0.5).delay is None


def test_each_retry_is_less_urgent_by_the_penalty() -> None:
    policy = Retry(priority_penalty=2)
    assert decide(policy, FAILURE, 1, 5, 0.0).priority == 7


def test_what_is_retried_by_type_and_by_predicate() -> None:
    policy = Retry(on=(OSError, lambda error: "again" in str(error)), give_up_on=(FileNotFoundError,))
    errors: list[tuple[BaseException, bool]] = [
        (OSError("disk"), True),
        (FileNotFoundError("a subclass, but given up on"), False),
        (ValueError("try again"), True),
        (ValueError("no"), False),
    ]
    assert [worth_retrying(policy, error) for error, _ in errors] == [worth for _, worth in errors]
    assert worth_retrying(Retry(), FAILURE)


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
def test_a_policy_that_cannot_work_is_told_by_field(policy: Retry, field: str) -> None:
    problem = policy.problem()
    assert problem is not None
    assert problem.startswith(field)
    assert Retry().problem() is None


@pytest.mark.parametrize(
    "given", [ValueError, (ValueError,), [ValueError], lambda error: "oops" in str(error)]
)
def test_one_matcher_is_as_good_as_several(given: Matchers) -> None:
    assert Retry(on=given).problem() is None
    assert worth_retrying(Retry(on=given), FAILURE)
    assert not worth_retrying(Retry(on=given), KeyError("other"))
    assert not worth_retrying(Retry(give_up_on=given), FAILURE)
    assert worth_retrying(Retry(give_up_on=given), KeyError("other"))
