"""What a call's end means for each of its jobs: results and errors become outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidemill.core.claims import Claimed
from tidemill.core.job import Error
from tidemill.core.outcomes import Crashed, Done, Fail, Outcome, Retrying
from tidemill.core.retry import Retry, decide
from tidemill.core.transitions import excuses
from tidemill.errors import SnoozeFor, Steer
from tidemill.feedback.sending import is_of_the_network
from tidemill.feedback.unpack import members, unpack
from tidemill.tasks.batches import Failed
from tidemill.tasks.metering import Meter, WaitsForUnits
from tidemill.tasks.payload import ResultCodec
from tidemill.worker.attempt import storable
from tidemill.worker.refused import refused
from tidemill.worker.translate import MESSAGE_CHARACTERS, Ends, describe, outcome_of

Item = Done | Failed | Fail
"""One of what a handler returned, as a child process writes it down."""

ACCOUNT_WIDE = frozenset({401, 402, 403, 408, 429})
"""Statuses no other item would have met with another fate. So are all of 500 and above."""
SERVER_ERROR = 500


class Verdict(msgspec.Struct, frozen=True, tag="verdict"):
    """`outcomes` are what becomes of each job when the call is not divided. `error` is what it failed of as
    a whole, and there only when one of the items may be to blame. `charged` as in
    `core.claims.Settlement`."""

    outcomes: list[Outcome]
    error: Error | None = None
    charged: list[Outcome] = msgspec.field(default_factory=list)


class EndsTogether(Exception):
    """Carries a verdict that was reached below the executor, in a child process."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__("a call has ended")
        self.verdict = verdict


def check(results: Any, count: int) -> Sequence[Any]:
    """What a handler returned, or an error like one of its own: it may be one item that it left out."""
    if not isinstance(results, list | tuple):
        raise TypeError(
            f"the handler must return a list with a result for each of its {count} items, "
            f"returned {type(results).__name__}"
        )
    if len(results) != count:
        raise ValueError(
            f"the handler was given {count} items and returned {len(results)} results: nobody can tell which "
            "belongs to which; return Failed(…) in the place of an item without a result"
        )
    return results


def answered(
    results: Sequence[Any], codec: ResultCodec, jobs: Sequence[Claimed], policy: Retry, chance: float
) -> list[Outcome]:
    return [_of_item(result, codec, job, policy, chance) for result, job in zip(results, jobs, strict=True)]


def raised(
    error: BaseException, meter: Meter | None, jobs: Sequence[Claimed], policy: Retry, chance: float
) -> Verdict:
    """A refusal and what else concerns the whole account are not divided: each half would meet the same.
    Nor is what the handler asks for by name. A call that is too large for its provider is. The job that was
    excused most often decides whether the call is excused once more."""
    if isinstance(error, EndsTogether):
        return error.verdict
    if isinstance(error, Ends):
        died = error.outcome.error if isinstance(error.outcome, Crashed) and len(jobs) > 1 else None
        return Verdict([error.outcome] * len(jobs), died)
    if isinstance(error, WaitsForUnits):  # no job of a batch waits alone
        error = SnoozeFor(error.delay, error.reason)
    outcomes = [outcome_of(error, policy, job.attempt, job.priority, chance) for job in jobs]
    if meter is not None and (told := refused(meter, error, max(jobs, key=excuses))) is not None:
        too_large = told.outcome.error if isinstance(told.outcome, Fail) else None
        return Verdict([told.outcome] * len(jobs), too_large, outcomes if told.overloaded else [])
    whole = isinstance(error, Steer) or concerns_all(error)
    return Verdict(outcomes, None if whole else describe(error))


def concerns_all(error: BaseException) -> bool:
    """True of a timeout, a connection that failed, and statuses that speak of the account or the provider."""
    return any(_concerns_all(one) for one in members(error))


def _concerns_all(error: BaseException) -> bool:
    if (status := unpack(error).status) is not None:
        return status in ACCOUNT_WIDE or status >= SERVER_ERROR
    return is_of_the_network(error)


def _of_item(result: Any, codec: ResultCodec, job: Claimed, policy: Retry, chance: float) -> Outcome:
    if isinstance(result, Fail):  # a result that could not be written down, from a child process
        return result
    if isinstance(result, Failed):
        return _failed(result, job, policy, chance)
    return stored(result, codec)


def stored(result: Any, codec: ResultCodec) -> Done | Fail:
    try:
        return Done(codec.encode(result))
    except Exception as error:  # noqa: BLE001 - encoding runs a user's own methods
        return Fail(describe(error), "result cannot be stored")


def _failed(failed: Failed, job: Claimed, policy: Retry, chance: float) -> Outcome:
    """The handler has said itself whether to retry: what the policy matches exceptions with is not asked."""
    error = Error("Failed", storable(str(failed.reason))[:MESSAGE_CHARACTERS])
    if not failed.retry:
        return Fail(error)
    policy = msgspec.structs.replace(policy, on=(), give_up_on=())
    decision = decide(policy, _ITEM, job.attempt, job.priority, chance)
    return Fail(error) if decision.delay is None else Retrying(decision.delay, error, decision.priority)


_ITEM = Exception()
