"""What a provider's refusal makes of an attempt."""

from __future__ import annotations

import msgspec

from tidemill.core.claims import Claimed
from tidemill.core.outcomes import Fail, Outcome, Release
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.transitions import excuses
from tidemill.errors import Steer, TidemillError
from tidemill.tasks.metering import Meter
from tidemill.worker.translate import Ends, describe

MAX_EXCUSES = 3
"""How many attempts of a job in a row a reported refusal may decide. Then the handler's error counts: a
fallback provider that is called without `ctx.used`, and a bug behind it, would loop for ever."""


class Decision(msgspec.Struct, frozen=True):
    """`outcome` is what a refusal makes of the attempt. `overloaded`: the pool pays for it until it has paid
    too often; then the job does."""

    outcome: Outcome
    overloaded: bool = False


def refused(meter: Meter, error: BaseException, job: Claimed) -> Decision | None:
    """The job keeps its place and its attempts (I16): what the pool heard keeps it from starting too soon.
    A call that never fits fails. None when nobody refused, or the handler has decided itself."""
    if isinstance(error, Ends):
        return None
    refusal = meter.refused(error)
    if isinstance(error, Steer):
        return None
    if refusal is None:
        reported = _reported(meter, error, job)
        return None if reported is None else Decision(Release(excused=True), _is_overload(reported))
    if refusal.reason is Reason.TOO_LARGE:
        return Decision(Fail(describe(error), "too large"))
    return Decision(Release(), _is_overload(refusal))


def _reported(meter: Meter, error: BaseException, job: Claimed) -> Refusal | None:
    """The refusal that `ctx.used` recognised, and that the handler's error follows from: it wanted a part of
    an answer that it did not get. An error of this package says itself what becomes of the job. A job without
    pools has no place for the count."""
    refusal = meter.reported
    if refusal is None or refusal.reason is Reason.TOO_LARGE or isinstance(error, TidemillError):
        return None
    return refusal if job.needs and excuses(job) < MAX_EXCUSES else None


def _is_overload(refusal: Refusal) -> bool:
    return refusal.reason is Reason.OVERLOAD
