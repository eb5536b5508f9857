from __future__ import annotations

from datetime import timedelta

import pytest

from tidemill.core.outcomes import FinalFailure, Outcome, RetryLater, Snooze
from tidemill.core.retry import Retry
from tidemill.errors import GiveUp, RetryAfter, SnoozeFor
from tidemill.worker.outcomes import (
    MAX_TRACEBACK_CHARACTERS,
    describe_error,
    outcome_of_error,
    timeout_outcome,
)

POLICY = Retry(attempts=3, first=5, jitter=0.5, priority_penalty=2)


def decide(error: BaseException, attempt: int = 1, policy: Retry = POLICY) -> Outcome:
    return outcome_of_error(error, policy, attempt, 5, 0.5)


def test_an_exception_is_retried_with_jitter_and_less_urgency() -> None:
    outcome = decide(ValueError("no"))
    assert isinstance(outcome, RetryLater)
    assert (outcome.delay, outcome.priority) == (6.25, 7)
    assert (outcome.error.type, outcome.error.message) == ("ValueError", "no")


def test_the_last_attempt_fails() -> None:
    outcome = decide(ValueError("no"), attempt=3)
    assert isinstance(outcome, FinalFailure)
    assert outcome.error.message == "no"


def test_retry_after_sets_the_delay_but_not_the_number_of_attempts() -> None:
    outcome = decide(RetryAfter(42))
    assert isinstance(outcome, RetryLater)
    assert outcome.delay == 42
    assert isinstance(decide(RetryAfter(42), attempt=3), FinalFailure)


def test_snooze_is_possible_on_any_attempt() -> None:
    assert decide(SnoozeFor(7, "busy"), attempt=3) == Snooze(7, "busy")


def test_give_up_wins_over_the_policy() -> None:
    assert isinstance(decide(GiveUp("never")), FinalFailure)


@pytest.mark.parametrize("delay", [-1, float("inf"), float("nan")])
def test_a_delay_that_is_no_time_fails_naming_it(delay: float) -> None:
    for steer in (RetryAfter(delay), SnoozeFor(delay)):
        outcome = decide(steer)
        assert isinstance(outcome, FinalFailure)
        assert "delay" in outcome.error.message


def test_a_delay_may_be_a_timedelta_and_text_is_shown_as_text() -> None:
    assert decide(SnoozeFor(timedelta(minutes=1))) == Snooze(60)
    outcome = decide(RetryAfter("30"))  # type: ignore[arg-type]
    assert isinstance(outcome, FinalFailure)
    assert "is '30'" in outcome.error.message


def test_a_predicate_that_raises_fails_the_job_and_not_the_worker() -> None:
    def broken(error: BaseException) -> bool:
        raise RuntimeError("predicate")

    outcome = decide(ValueError("no"), policy=Retry(on=(broken,)))
    assert isinstance(outcome, FinalFailure)
    assert outcome.reason == "retry predicate failed"
    assert (outcome.error.type, outcome.error.message) == (
        "ValueError",
        "no (and its retry predicate raised RuntimeError: predicate)",
    )
    assert isinstance(decide(RetryAfter(1), policy=Retry(on=(broken,))), FinalFailure)


def test_a_timeout_is_retried_under_its_own_name() -> None:
    outcome = timeout_outcome(1.5, POLICY, 1, 5, 0)
    assert isinstance(outcome, RetryLater)
    assert (outcome.error.type, outcome.delay) == ("Timeout", 5)
    assert isinstance(timeout_outcome(1.5, POLICY, 3, 5, 0), FinalFailure)
    never = Retry(give_up_on=(TimeoutError,))
    assert isinstance(timeout_outcome(1.5, never, 1, 5, 0), FinalFailure)


def test_text_that_no_store_can_keep_is_replaced() -> None:
    error = describe_error(ValueError("a\x00b\udce4c" + "x" * 10_000))
    assert error.message.startswith("a\N{REPLACEMENT CHARACTER}b?c")
    assert len(error.message) == 2000
    assert error.traceback is not None
    assert len(error.traceback) <= MAX_TRACEBACK_CHARACTERS


def test_an_error_that_cannot_be_shown_is_still_described() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe_error(Mute()).type == "Mute"
