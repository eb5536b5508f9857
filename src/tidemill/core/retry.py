"""Retry policies: whether and when a failed attempt is worth another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal, get_args

import msgspec

from tidemill.core.job import PRIORITY_RANGE
from tidemill.core.numbers import is_number, is_whole
from tidemill.times import in_seconds

Matcher = type[BaseException] | Callable[[BaseException], bool]
Matchers = Matcher | tuple[Matcher, ...] | list[Matcher]
Shape = Literal["fixed", "linear", "exponential"]


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """`attempts` counts runs, the first included.

    The wait before attempt n+1 is first (fixed), first · n (linear) or
    first · factor^(n-1) (exponential), at most `cap`; jitter adds up to that share on top.
    `on` narrows what is retried, `give_up_on` wins over it; both take one `Matcher`
    or several: an exception type, or a function of the error that answers True or False. Each retry
    makes the job `priority_penalty` less urgent.
    """

    attempts: int = 3
    first: float | timedelta = 5.0
    factor: float = 2.0
    cap: float | timedelta = 3600.0
    shape: Shape = "exponential"
    jitter: float = 0.1
    on: Matchers = ()
    give_up_on: Matchers = ()
    priority_penalty: int = 0

    def problem(self) -> str | None:
        if problem := self._problem_with_numbers():
            return problem
        if self.shape not in get_args(Shape):
            return f"retry.shape: must be fixed, linear or exponential, is {self.shape!r}"
        for field in ("on", "give_up_on"):
            for matcher in _each(getattr(self, field)):
                if not (_is_error_type(matcher) or (callable(matcher) and not isinstance(matcher, type))):
                    return (
                        f"retry.{field}: must be exception types, or functions that take the error and "
                        f"answer True or False, is {matcher!r}"
                    )
        return None

    def _problem_with_numbers(self) -> str | None:
        duration = "a number of seconds or a timedelta, 0 or more"
        checks = (
            ("attempts", is_whole(self.attempts, 1), "a whole number, 1 or more (1 means no retry)"),
            ("first", is_number(in_seconds(self.first), 0), duration),
            ("factor", is_number(self.factor, 1), "a number, 1 or more"),
            ("cap", is_number(in_seconds(self.cap), 0), duration),
            ("jitter", is_number(self.jitter, 0), "a number, 0 or more"),
            ("priority_penalty", is_whole(self.priority_penalty, 0), "a whole number, 0 or more"),
        )
        for field, fits, wanted in checks:
            if not fits:
                return f"retry.{field}: must be {wanted}, is {getattr(self, field)!r}"
        return None


NEVER = Retry(attempts=1)


class Decision(msgspec.Struct, frozen=True):
    """Retry after `delay` with `priority`, or give up when `delay` is None."""

    delay: float | None
    priority: int


def decide(policy: Retry, error: BaseException, attempt: int, priority: int, chance: float) -> Decision:
    """`chance` is a random number in [0, 1) from the caller; jitter only ever waits longer."""
    if attempt >= policy.attempts or not worth_retrying(policy, error):
        return Decision(None, priority)
    delay = wait_before(policy, attempt) * (1 + policy.jitter * chance)
    return Decision(delay, min(priority + policy.priority_penalty, PRIORITY_RANGE[1]))


def wait_before(policy: Retry, attempt: int) -> float:
    """The wait after the failed attempt of that number, without jitter."""
    first = in_seconds(policy.first)
    if policy.shape == "fixed":
        wait = first
    elif policy.shape == "linear":
        wait = first * attempt
    else:
        wait = first * _power(policy.factor, attempt - 1)
    return min(wait, in_seconds(policy.cap))


def _power(factor: float, exponent: int) -> float:
    """A huge attempt number overflows a float long after any cap was reached."""
    try:
        return float(factor) ** exponent
    except OverflowError:
        return sys.float_info.max


def worth_retrying(policy: Retry, error: BaseException) -> bool:
    if any(_matches(matcher, error) for matcher in _each(policy.give_up_on)):
        return False
    wanted = _each(policy.on)
    return not wanted or any(_matches(matcher, error) for matcher in wanted)


def _each(matchers: Matchers) -> Sequence[Matcher]:
    return matchers if isinstance(matchers, tuple | list) else (matchers,)


def _is_error_type(matcher: Matcher) -> bool:
    return isinstance(matcher, type) and issubclass(matcher, BaseException)


def _matches(matcher: Matcher, error: BaseException) -> bool:
    if isinstance(matcher, type):
        return isinstance(error, matcher)
    return bool(matcher(error))
