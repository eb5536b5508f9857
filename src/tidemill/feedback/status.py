"""What the HTTP status alone says."""

from __future__ import annotations

from tidemill.core.refusals import Reason, Refusal
from tidemill.feedback.facts import Facts
from tidemill.feedback.ietf import hint

LONG = 900.0
"""A hint beyond this is no matter of a minute: the provider states when it is back."""

_REASONS = {
    401: Reason.FORBIDDEN,
    402: Reason.SPENDING,
    403: Reason.FORBIDDEN,
    413: Reason.TOO_LARGE,
    429: Reason.UNKNOWN,
    503: Reason.OVERLOAD,
    529: Reason.OVERLOAD,
}


def by_status(facts: Facts, now: float) -> Refusal | None:
    reason = None if facts.status is None else _REASONS.get(facts.status)
    if reason is None:
        return None
    after = hint(facts, now)
    if reason is Reason.UNKNOWN and after is not None:
        reason = Reason.RATE if after <= LONG else Reason.STATED
    bare = reason is Reason.FORBIDDEN
    return Refusal(reason=reason, retry_after=after, status=facts.status, text=facts.message, bare=bare)
