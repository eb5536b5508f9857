"""Retry policies: whether and when a failed job runs again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal, get_args

import msgspec

from tidemill.core.jobs import PRIORITY_RANGE
from tidemill.core.validation import is_integer, is_number
from tidemill.times import to_seconds

Matcher = type[BaseException] | Callable[[BaseException], bool]
Matchers = Matcher | tuple[Matcher, ...] | list[Matcher]
BackoffShape = Literal["fixed", "linear", "exponential"]


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A retry policy: whether and when a failed job runs again.

    - `attempts`: the number of runs, including the first.
    - `shape`: the wait after attempt n is `first` (fixed), `first` · n (linear) or `first` · `factor`^(n-1)
      (exponential), and at most `cap`.
    - `jitter`: a random part of up to this share is added to the wait; 0.1 is 10 %.
    - `on`: the errors that are retried; empty means all. One matcher or several: a matcher is an exception
      type, or a function that takes the error and returns True or False.
    - `give_up_on`: matchers for errors that are not retried, even if `on` matches them.
    - `priority_penalty`: each retry adds this number to the priority, which makes the job less urgent."""

    attempts: int = 3
    first: float | timedelta = 5.0
    factor: float = 2.0
    cap: float | timedelta = 3600.0
    shape: BackoffShape = "exponential"
    jitter: float = 0.1
    on: Matchers = ()
    give_up_on: Matchers = ()
    priority_penalty: int = 0

    def problem(self) -> str | None:
        if problem := self._problem_with_numbers():
            return problem
        if self.shape not in get_args(BackoffShape):
            return f"retry.shape: must be fixed, linear or exponential, is {self.shape!r}"
        for field in ("on", "give_up_on"):
            for matcher in _as_sequence(getattr(self, field)):
                if not (_is_error_type(matcher) or (callable(matcher) and not isinstance(matcher, type))):
                    return (
                        f"retry.{field}: must be exception types, or functions that take the error and "
                        f"answer True or False, is {matcher!r}"
                    )
        return None

    def _problem_with_numbers(self) -> str | None:
        duration = "a number of seconds or a timedelta, 0 or more"
        checks = (
            ("attempts", is_integer(self.attempts, 1), "a whole number, 1 or more (1 means no retry)"),
            ("first", is_number(to_seconds(self.first), 0), duration),
            ("factor", is_number(self.factor, 1), "a number, 1 or more"),
            ("cap", is_number(to_seconds(self.cap), 0), duration),
            ("jitter", is_number(self.jitter, 0), "a number, 0 or more"),
            ("priority_penalty", is_integer(self.priority_penalty, 0), "a whole number, 0 or more"),
        )
        for field, fits, expected in checks:
            if not fits:
                return f"retry.{field}: must be {expected}, is {getattr(self, field)!r}"
        return None


NO_RETRY = Retry(attempts=1)


class RetryDecision(msgspec.Struct, frozen=True):
    """The decision about a failed job. `delay` is the number of seconds until the retry; None means no retry.
    `priority` is the job's new priority."""

    delay: float | None
    priority: int


def decide_retry(
    policy: Retry, error: BaseException, attempt: int, priority: int, chance: float
) -> RetryDecision:
    """Returns whether and when a failed job runs again. `attempt` is the number of the failed attempt.
    `chance` is a random number from 0 to below 1."""
    if attempt >= policy.attempts or not is_retryable(policy, error):
        return RetryDecision(None, priority)
    delay = backoff_seconds(policy, attempt) * (1 + policy.jitter * chance)
    return RetryDecision(delay, min(priority + policy.priority_penalty, PRIORITY_RANGE[1]))


def backoff_seconds(policy: Retry, attempt: int) -> float:
    """Returns the seconds to wait after the given attempt, without jitter. The first attempt is 1."""
    first = to_seconds(policy.first)
    if policy.shape == "fixed":
        wait = first
    elif policy.shape == "linear":
        wait = first * attempt
    else:
        wait = first * _power(policy.factor, attempt - 1)
    return min(wait, to_seconds(policy.cap))


def _power(factor: float, exponent: int) -> float:
    """Returns `factor` to the power of `exponent`. On overflow it returns the largest float, which is above
    any cap."""
    try:
        return float(factor) ** exponent
    except OverflowError:
        return sys.float_info.max


def is_retryable(policy: Retry, error: BaseException) -> bool:
    if any(_matches_error(matcher, error) for matcher in _as_sequence(policy.give_up_on)):
        return False
    conditions = _as_sequence(policy.on)
    return not conditions or any(_matches_error(matcher, error) for matcher in conditions)


def _as_sequence(matchers: Matchers) -> Sequence[Matcher]:
    return matchers if isinstance(matchers, tuple | list) else (matchers,)


def _is_error_type(matcher: Matcher) -> bool:
    return isinstance(matcher, type) and issubclass(matcher, BaseException)


def _matches_error(matcher: Matcher, error: BaseException) -> bool:
    if isinstance(matcher, type):
        return isinstance(error, matcher)
    return bool(matcher(error))
