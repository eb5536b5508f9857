"""The adapter for Google Gemini. It reads `error.status`, and `QuotaFailure` and `RetryInfo` in
`error.details[]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidemill.core.feedback import Reason, Refusal
from tidemill.feedback.generic_http import (
    normalise_words,
    parse_duration,
    parse_number,
    parse_retry_after,
    refusal_from_text,
    retry_hint_in,
)
from tidemill.feedback.provider_reply import ProviderReply, RefusalVerdict, StatedLimit

MAX_DETAILS = 50
_STATUSES = {
    "RESOURCE_EXHAUSTED": Reason.UNKNOWN,
    "UNAVAILABLE": Reason.OVERLOAD,
    "PERMISSION_DENIED": Reason.FORBIDDEN,
    "UNAUTHENTICATED": Reason.FORBIDDEN,
}
_NO_REFUSAL = frozenset(
    {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "INTERNAL", "DEADLINE_EXCEEDED"}
)
_ZERO_LIMIT = re.compile(r"\blimit: 0\b(?!\.\d)")
_TOO_LONG = re.compile(r"\bexceeds the maximum (?:number of )?tokens\b|\bpayload size exceeds\b")
_REASONS_BY_WAIT = (Reason.RATE, Reason.UNKNOWN, Reason.DAY_QUOTA)
"""Sorted by wait, the shortest first."""
_WINDOWS = {Reason.RATE: 60.0, Reason.DAY_QUOTA: 86_400.0}


def find_refusal(reply: ProviderReply, now: float) -> RefusalVerdict | None:
    status = reply.word("status")
    if status in _NO_REFUSAL:
        return RefusalVerdict(_invalid_request_refusal(reply, status))
    if status not in _STATUSES:
        return None
    if status == "RESOURCE_EXHAUSTED":
        return RefusalVerdict(_exhausted_refusal(reply, now))
    after = _retry_hint(reply, now)
    return RefusalVerdict(
        Refusal(reason=_STATUSES[status], retry_after=after, status=reply.status, text=reply.message)
    )


def stated_limits(reply: ProviderReply, now: float) -> tuple[StatedLimit, ...]:  # noqa: ARG001 - no header has a time
    """Returns the limits that a refusal states; empty for any other reply. Gemini sends no rate-limit
    headers."""
    if reply.word("status") != "RESOURCE_EXHAUSTED":
        return ()
    found = []
    for violation in _violations(reply):
        unit, window = _unit(violation), _WINDOWS.get(_reason(violation))
        amount = parse_number(violation.get("quotaValue"))
        if unit is not None and window is not None and amount:
            found.append(StatedLimit(unit=unit, window=window, limit=amount))
    return tuple(found)


def _exhausted_refusal(reply: ProviderReply, now: float) -> Refusal:
    """Returns the refusal of a `RESOURCE_EXHAUSTED` error. Of several violated quotas, the quota with the
    longest wait gives the reason."""
    violations = list(_violations(reply))
    after = _retry_hint(reply, now)
    if _ZERO_LIMIT.search(reply.message) or any(
        parse_number(violation.get("quotaValue")) == 0 for violation in violations
    ):
        # The plan does not include this model, so waiting does not help.
        return Refusal(reason=Reason.FORBIDDEN, status=reply.status, text=reply.message)
    found = [(_reason(violation), _unit(violation)) for violation in violations]
    if not found:
        return _refusal_from_words(reply, after)
    reason = max((violation for violation, _ in found), key=_REASONS_BY_WAIT.index)
    if reason is Reason.UNKNOWN and after is not None:
        reason = Reason.RATE
    units = {unit for violation, unit in found if violation is reason}
    return Refusal(
        reason=reason,
        unit=units.pop() if len(units) == 1 else None,
        retry_after=after,
        status=reply.status,
        then=Reason.DAY_QUOTA if reason is Reason.UNKNOWN else None,
        text=reply.message,
    )


def _refusal_from_words(reply: ProviderReply, after: float | None) -> Refusal:
    refusal = refusal_from_text(reply)
    reason = refusal.reason if refusal else Reason.UNKNOWN
    if reason is Reason.UNKNOWN and after is not None:
        reason = Reason.RATE
    return Refusal(
        reason=reason,
        retry_after=after,
        status=reply.status,
        then=Reason.DAY_QUOTA if reason is Reason.UNKNOWN else None,
        text=reply.message,
    )


def _reason(violation: Mapping[str, Any]) -> Reason:
    named = normalise_words(f"{violation.get('quotaId', '')} {violation.get('quotaMetric', '')}")
    if "per day" in named:
        return Reason.DAY_QUOTA
    return Reason.RATE if "per minute" in named else Reason.UNKNOWN


def _unit(violation: Mapping[str, Any]) -> str | None:
    named = normalise_words(f"{violation.get('quotaId', '')} {violation.get('quotaMetric', '')}")
    if "token" in named:
        return "input_tokens" if "input token" in named else "tokens"
    return "requests" if "request" in named else None


def _invalid_request_refusal(reply: ProviderReply, status: str) -> Refusal | None:
    reasons = [detail.get("reason") for detail in _details(reply)]
    reason = None
    if "API_KEY_INVALID" in reasons:
        reason = Reason.FORBIDDEN
    elif status == "INVALID_ARGUMENT" and _TOO_LONG.search(normalise_words(reply.message)):
        reason = Reason.TOO_LARGE
    if reason is None:
        return None
    return Refusal(reason=reason, status=reply.status, text=reply.message)


def _retry_hint(reply: ProviderReply, now: float) -> float | None:
    delays = [
        found for detail in _details(reply) if (found := parse_duration(detail.get("retryDelay"))) is not None
    ]
    if delays:
        return max(delays)
    after = parse_retry_after(reply, now)
    return retry_hint_in(normalise_words(reply.message)) if after is None else after


def _violations(reply: ProviderReply) -> Iterator[Mapping[str, Any]]:
    for detail in _details(reply):
        found = detail.get("violations")
        if isinstance(found, list):
            yield from (violation for violation in found[:MAX_DETAILS] if isinstance(violation, Mapping))


def _details(reply: ProviderReply) -> list[Mapping[str, Any]]:
    details = reply.error.get("details")
    found = details[:MAX_DETAILS] if isinstance(details, list) else []
    return [detail for detail in found if isinstance(detail, Mapping)]
