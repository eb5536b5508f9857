"""What a provider's refusal makes of an attempt."""

from __future__ import annotations

from tidemill.core.outcomes import Fail, Outcome, Release
from tidemill.core.refusals import Reason
from tidemill.errors import Steer
from tidemill.tasks.metering import Meter
from tidemill.worker.translate import Ends, describe


def refused(meter: Meter, error: BaseException) -> Outcome | None:
    """The job keeps its place and its attempts (I16): what the pool heard keeps it from starting too soon.
    A call that never fits fails. None when nobody refused, or the handler has decided itself."""
    if isinstance(error, Ends):
        return None
    refusal = meter.refused(error)
    if refusal is None or isinstance(error, Steer):
        return None
    if refusal.reason is Reason.TOO_LARGE:
        return Fail(describe(error), "too large")
    return Release()


def is_overloaded(meter: Meter, error: BaseException) -> bool:
    """The pool pays for such a refusal, until it has paid too often; then the job does."""
    if isinstance(error, Ends | Steer):
        return False
    refusal = meter.refused(error)
    return refusal is not None and refusal.reason is Reason.OVERLOAD
