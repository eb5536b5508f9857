"""Turns results, exceptions and provider refusals into outcomes."""

from __future__ import annotations

import math
import traceback

import msgspec

from tidemill.core.checkpoints import UNKNOWN_OUTCOME
from tidemill.core.claims import ClaimedJob
from tidemill.core.feedback import Reason, Refusal
from tidemill.core.jobs import MAX_STEP_RESULT_BYTES, Error
from tidemill.core.outcomes import FinalFailure, JobRelease, Outcome, RetryLater, Snooze, Success, UnitWait
from tidemill.core.retry import Retry, decide_retry
from tidemill.core.transitions import excuse_count
from tidemill.errors import (
    AttemptExit,
    ClaimLost,
    ConfigurationError,
    DependencyUnavailable,
    GiveUp,
    InvalidPayload,
    RetryAfter,
    SnoozeFor,
    StepUnusable,
    TidemillError,
    UnknownOutcome,
    WaitRefused,
)
from tidemill.tasks.usage import UnitsUnavailable, UsageMeter
from tidemill.worker.attempt import replace_unstorable

MAX_TRACEBACK_CHARACTERS = 8192
MAX_MESSAGE_CHARACTERS = 2000


class OutcomeSignal(Exception):
    """An exception that carries an outcome to the executor."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


def outcome_of_error(
    error: BaseException, policy: Retry, attempt: int, priority: int, chance: float
) -> Outcome:
    """Returns the outcome of a job whose handler raised `error`. It never raises.

    - `attempt`: the number of the attempt.
    - `chance`: a random number between 0 and 1 for the retry delay."""
    try:
        return _decide(error, policy, attempt, priority, chance)
    except BaseException as broken:  # noqa: BLE001 - the slot of the attempt depends on an answer
        return FinalFailure(
            _add_predicate_error(describe_error(error), describe_error(broken)), "retry predicate failed"
        )


def _decide(error: BaseException, policy: Retry, attempt: int, priority: int, chance: float) -> Outcome:
    match error:
        case OutcomeSignal():
            return error.outcome
        case UnitsUnavailable(needs=needs):
            return UnitWait(needs)
        case SnoozeFor(delay=delay) if _is_valid_delay(delay):
            return _snooze(error)
        case GiveUp() | ConfigurationError() | WaitRefused(lasting=True):
            return _permanent_failure(error)
        case ClaimLost():
            return JobRelease()  # the store refuses it, but settles the units that were used
        case RetryAfter(delay=delay) if _is_valid_delay(delay):
            decision = decide_retry(policy, error, attempt, priority, chance)
            return _retry_or_fail(error, None if decision.delay is None else delay, decision.priority)
        case SnoozeFor() | RetryAfter():
            return FinalFailure(
                Error(
                    type(error).__name__, f"delay: must be a number of seconds, 0 or more, is {error.delay!r}"
                )
            )
    decision = decide_retry(policy, error, attempt, priority, chance)
    return _retry_or_fail(error, decision.delay, decision.priority)


def _snooze(error: SnoozeFor) -> Snooze:
    reason = None if error.reason is None else replace_unstorable(str(error.reason))
    if isinstance(error, DependencyUnavailable):
        return Snooze(error.delay, reason, replace_unstorable(str(error.dependency)))
    return Snooze(error.delay, reason)


def _permanent_failure(error: BaseException) -> FinalFailure:
    match error:
        case UnknownOutcome():
            return FinalFailure(describe_error(error), UNKNOWN_OUTCOME)
        case StepUnusable():
            return FinalFailure(describe_error(error), "step unusable")
        case ConfigurationError() | WaitRefused():  # only a code change helps, so no retry
            return FinalFailure(describe_error(error), "wrong use")
    return FinalFailure(describe_error(error))


def timeout_outcome(seconds: float, policy: Retry, attempt: int, priority: int, chance: float) -> Outcome:
    error = TimeoutError(f"did not end within its timeout of {seconds:g} seconds")
    outcome = outcome_of_error(error, policy, attempt, priority, chance)
    described = Error("Timeout", str(error))
    if isinstance(outcome, RetryLater):
        return RetryLater(outcome.delay, described, outcome.priority)
    return FinalFailure(described)


def describe_error(error: BaseException) -> Error:
    """Returns an exception as an `Error` with class name, message and traceback. A long traceback is cut to
    its end."""
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
        message = "(its message cannot be shown)"
    lines = "".join(traceback.format_exception(error))
    return Error(
        type(error).__name__,
        replace_unstorable(message)[:MAX_MESSAGE_CHARACTERS],
        replace_unstorable(lines)[-MAX_TRACEBACK_CHARACTERS:],
    )


def _add_predicate_error(error: Error, broken: Error) -> Error:
    message = f"{error.message} (and its retry predicate raised {broken.type}: {broken.message})"
    return Error(error.type, message[:MAX_MESSAGE_CHARACTERS], broken.traceback)


def _retry_or_fail(error: BaseException, delay: float | None, priority: int) -> Outcome:
    if delay is None:
        return FinalFailure(describe_error(error))
    return RetryLater(delay, describe_error(error), priority)


def _is_valid_delay(delay: float) -> bool:
    return isinstance(delay, int | float) and math.isfinite(delay) and delay >= 0


MAX_EXCUSED_ATTEMPTS = 3
"""How many attempts of a job in a row a reported refusal may excuse. After that the handler's error counts:
a handler that falls back to another provider without `ctx.used`, and has a bug there, would loop for
ever."""


class RefusalOutcome(msgspec.Struct, frozen=True):
    """The outcome of an attempt that a provider refused. `overloaded` is True if the provider was
    overloaded."""

    outcome: Outcome
    overloaded: bool = False


def decide_refusal(meter: UsageMeter, error: BaseException, job: ClaimedJob) -> RefusalOutcome | None:
    """Returns the outcome of an attempt that ended because a provider refused its call (I16). Returns None if
    no provider refused, or if the handler itself chose the outcome.

    The job usually loses no attempt. A call that is too large for the provider fails the job."""
    if isinstance(error, OutcomeSignal):
        return None
    refusal = meter.refused(error)
    if isinstance(error, AttemptExit):
        return None
    if refusal is None:
        reported = _find_reported_refusal(meter, error, job)
        return None if reported is None else RefusalOutcome(JobRelease(excused=True), _is_overload(reported))
    if refusal.reason is Reason.TOO_LARGE:
        return RefusalOutcome(FinalFailure(describe_error(error), "too large"))
    return RefusalOutcome(JobRelease(), _is_overload(refusal))


def _find_reported_refusal(meter: UsageMeter, error: BaseException, job: ClaimedJob) -> Refusal | None:
    """Returns the refusal that the handler reported with `ctx.used`, if it probably caused the handler's
    error. Returns None otherwise; the job then loses an attempt.

    At most 3 attempts in a row are excused in this way."""
    refusal = meter.reported
    if refusal is None or refusal.reason is Reason.TOO_LARGE or isinstance(error, TidemillError):
        return None
    return refusal if job.needs and excuse_count(job) < MAX_EXCUSED_ATTEMPTS else None


def _is_overload(refusal: Refusal) -> bool:
    return refusal.reason is Reason.OVERLOAD


def limit_result_size(outcome: Outcome) -> Outcome:
    """Returns the outcome of a flow job unchanged if its result is small enough for the next steps. Otherwise
    returns a final failure."""
    result = outcome.result if isinstance(outcome, Success) else None
    if result is None or len(result) <= MAX_STEP_RESULT_BYTES:
        return outcome
    sentence = (
        f"the result has {len(result)} bytes, a step of a flow may return {MAX_STEP_RESULT_BYTES}; "
        "store it elsewhere and return where it is"
    )
    return FinalFailure(Error("ResultTooLarge", sentence), "result too large")


def invalid_payload_outcome(job: ClaimedJob, error: InvalidPayload) -> FinalFailure:
    if job.flow is None:
        return FinalFailure(Error("InvalidPayload", str(error)), "invalid payload")
    from tidemill.flows.job_builder import explain_sources

    return FinalFailure(Error("InvalidPayload", f"{error}{explain_sources(job.flow)}"), "invalid payload")
