"""What the end of an attempt means: an exception or a result becomes an outcome."""

from __future__ import annotations

import math
import traceback

from tidemill.core.checkpoints import UNKNOWN_OUTCOME
from tidemill.core.job import Error
from tidemill.core.outcomes import Await, Fail, Outcome, Release, Retrying, Snooze
from tidemill.core.retry import Retry, decide
from tidemill.errors import (
    ClaimLost,
    ConfigurationError,
    GiveUp,
    RetryAfter,
    SnoozeFor,
    StepUnusable,
    UnknownOutcome,
    WaitRefused,
)
from tidemill.tasks.metering import WaitsForUnits
from tidemill.worker.attempt import storable

TRACEBACK_BYTES = 8192
MESSAGE_CHARACTERS = 2000


class Ends(Exception):
    """Carries an outcome that was decided below the executor, in a child process for example."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


def outcome_of(error: BaseException, policy: Retry, attempt: int, priority: int, chance: float) -> Outcome:
    """What becomes of a job whose handler raised. Never raises itself: a user's predicate may, and an
    error nobody can judge is not retried."""
    try:
        return _judged(error, policy, attempt, priority, chance)
    except BaseException as broken:  # noqa: BLE001 - the slot of the attempt depends on an answer
        return Fail(_with_predicate(describe(error), describe(broken)), "retry predicate failed")


def _judged(error: BaseException, policy: Retry, attempt: int, priority: int, chance: float) -> Outcome:
    match error:
        case Ends():
            return error.outcome
        case WaitsForUnits(needs=needs):
            return Await(needs)
        case SnoozeFor(delay=delay, reason=reason) if _waitable(delay):
            return Snooze(delay, None if reason is None else storable(str(reason)))
        case GiveUp() | ConfigurationError() | WaitRefused(lasting=True):
            return _for_good(error)
        case ClaimLost():
            return Release()  # which the store refuses; what was used is booked all the same
        case RetryAfter(delay=delay) if _waitable(delay):
            decision = decide(policy, error, attempt, priority, chance)
            return _retrying(error, None if decision.delay is None else delay, decision.priority)
        case SnoozeFor() | RetryAfter():
            return Fail(
                Error(
                    type(error).__name__, f"delay: must be a number of seconds, 0 or more, is {error.delay!r}"
                )
            )
    decision = decide(policy, error, attempt, priority, chance)
    return _retrying(error, decision.delay, decision.priority)


def _for_good(error: BaseException) -> Fail:
    match error:
        case UnknownOutcome():
            return Fail(describe(error), UNKNOWN_OUTCOME)
        case StepUnusable():
            return Fail(describe(error), "step unusable")
        case ConfigurationError() | WaitRefused():  # only other code mends it: trying again does not
            return Fail(describe(error), "wrong use")
    return Fail(describe(error))


def timed_out(seconds: float, policy: Retry, attempt: int, priority: int, chance: float) -> Outcome:
    error = TimeoutError(f"did not end within its timeout of {seconds:g} seconds")
    outcome = outcome_of(error, policy, attempt, priority, chance)
    described = Error("Timeout", str(error))
    if isinstance(outcome, Retrying):
        return Retrying(outcome.delay, described, outcome.priority)
    return Fail(described)


def describe(error: BaseException) -> Error:
    """An exception as data, with the end of its traceback: that is where the cause stands."""
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
        message = "(its message cannot be shown)"
    lines = "".join(traceback.format_exception(error))
    return Error(
        type(error).__name__,
        storable(message)[:MESSAGE_CHARACTERS],
        storable(lines)[-TRACEBACK_BYTES:],
    )


def _with_predicate(error: Error, broken: Error) -> Error:
    message = f"{error.message} (and its retry predicate raised {broken.type}: {broken.message})"
    return Error(error.type, message[:MESSAGE_CHARACTERS], broken.traceback)


def _retrying(error: BaseException, delay: float | None, priority: int) -> Outcome:
    if delay is None:
        return Fail(describe(error))
    return Retrying(delay, describe(error), priority)


def _waitable(delay: float) -> bool:
    return isinstance(delay, int | float) and math.isfinite(delay) and delay >= 0
