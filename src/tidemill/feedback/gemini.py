"""Google: `error.status` and `error.details[]` with `QuotaFailure` and `RetryInfo`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidemill.core.refusals import Reason, Refusal
from tidemill.feedback.facts import Facts
from tidemill.feedback.ietf import retry_after
from tidemill.feedback.parsing import duration, number
from tidemill.feedback.reading import Known, Stated
from tidemill.feedback.text import by_text, hint_in, normal

MOST_DETAILS = 50
_STATUSES = {
    "RESOURCE_EXHAUSTED": Reason.UNKNOWN,
    "UNAVAILABLE": Reason.OVERLOAD,
    "PERMISSION_DENIED": Reason.FORBIDDEN,
    "UNAUTHENTICATED": Reason.FORBIDDEN,
}
_NO_REFUSAL = frozenset(
    {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "INTERNAL", "DEADLINE_EXCEEDED"}
)
_NOTHING = re.compile(r"\blimit: 0\b(?!\.\d)")
_TOO_LONG = re.compile(r"\bexceeds the maximum (?:number of )?tokens\b|\bpayload size exceeds\b")
_WAITS = (Reason.RATE, Reason.UNKNOWN, Reason.DAY_QUOTA)
"""From short to long."""
_WINDOWS = {Reason.RATE: 60.0, Reason.DAY_QUOTA: 86_400.0}


def refusal(facts: Facts, now: float) -> Known | None:
    status = facts.word("status")
    if status in _NO_REFUSAL:
        return Known(_invalid(facts, status))
    if status not in _STATUSES:
        return None
    if status == "RESOURCE_EXHAUSTED":
        return Known(_exhausted(facts, now))
    after = _hint(facts, now)
    return Known(
        Refusal(reason=_STATUSES[status], retry_after=after, status=facts.status, text=facts.message)
    )


def stated(facts: Facts, now: float) -> tuple[Stated, ...]:  # noqa: ARG001 - nothing here has a time
    """There are no headers, but a refusal says how much is allowed."""
    if facts.word("status") != "RESOURCE_EXHAUSTED":
        return ()
    found = []
    for violation in _violations(facts):
        unit, window = _unit(violation), _WINDOWS.get(_reason(violation))
        amount = number(violation.get("quotaValue"))
        if unit is not None and window is not None and amount:
            found.append(Stated(unit=unit, window=window, limit=amount))
    return tuple(found)


def _exhausted(facts: Facts, now: float) -> Refusal:
    """A day goes before any hint, and of several violations the longest wait wins."""
    violations = list(_violations(facts))
    after = _hint(facts, now)
    if _NOTHING.search(facts.message) or any(number(one.get("quotaValue")) == 0 for one in violations):
        # Nothing of this model is in the plan: no wait helps.
        return Refusal(reason=Reason.FORBIDDEN, status=facts.status, text=facts.message)
    found = [(_reason(one), _unit(one)) for one in violations]
    if not found:
        return _by_words(facts, after)
    reason = max((one for one, _ in found), key=_WAITS.index)
    if reason is Reason.UNKNOWN and after is not None:
        reason = Reason.RATE
    units = {unit for one, unit in found if one is reason}
    return Refusal(
        reason=reason,
        unit=units.pop() if len(units) == 1 else None,
        retry_after=after,
        status=facts.status,
        then=Reason.DAY_QUOTA if reason is Reason.UNKNOWN else None,
        text=facts.message,
    )


def _by_words(facts: Facts, after: float | None) -> Refusal:
    said = by_text(facts)
    reason = said.reason if said else Reason.UNKNOWN
    if reason is Reason.UNKNOWN and after is not None:
        reason = Reason.RATE
    return Refusal(
        reason=reason,
        retry_after=after,
        status=facts.status,
        then=Reason.DAY_QUOTA if reason is Reason.UNKNOWN else None,
        text=facts.message,
    )


def _reason(violation: Mapping[str, Any]) -> Reason:
    named = normal(f"{violation.get('quotaId', '')} {violation.get('quotaMetric', '')}")
    if "per day" in named:
        return Reason.DAY_QUOTA
    return Reason.RATE if "per minute" in named else Reason.UNKNOWN


def _unit(violation: Mapping[str, Any]) -> str | None:
    named = normal(f"{violation.get('quotaId', '')} {violation.get('quotaMetric', '')}")
    if "token" in named:
        return "input_tokens" if "input token" in named else "tokens"
    return "requests" if "request" in named else None


def _invalid(facts: Facts, status: str) -> Refusal | None:
    reasons = [one.get("reason") for one in _details(facts)]
    reason = None
    if "API_KEY_INVALID" in reasons:
        reason = Reason.FORBIDDEN
    elif status == "INVALID_ARGUMENT" and _TOO_LONG.search(normal(facts.message)):
        reason = Reason.TOO_LARGE
    if reason is None:
        return None
    return Refusal(reason=reason, status=facts.status, text=facts.message)


def _hint(facts: Facts, now: float) -> float | None:
    delays = [found for one in _details(facts) if (found := duration(one.get("retryDelay"))) is not None]
    if delays:
        return max(delays)
    after = retry_after(facts, now)
    return hint_in(normal(facts.message)) if after is None else after


def _violations(facts: Facts) -> Iterator[Mapping[str, Any]]:
    for detail in _details(facts):
        found = detail.get("violations")
        if isinstance(found, list):
            yield from (one for one in found[:MOST_DETAILS] if isinstance(one, Mapping))


def _details(facts: Facts) -> list[Mapping[str, Any]]:
    details = facts.error.get("details")
    found = details[:MOST_DETAILS] if isinstance(details, list) else []
    return [one for one in found if isinstance(one, Mapping)]
