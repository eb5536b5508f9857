"""ElevenLabs: `detail.status`, and calls at once in two headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.core.refusals import Reason, Refusal
from tidemill.feedback.facts import Facts
from tidemill.feedback.ietf import retry_after
from tidemill.feedback.parsing import number
from tidemill.feedback.reading import AT_ONCE, Known, Stated

_WORDS = {
    "too_many_concurrent_requests": Reason.CONCURRENCY,  # ours
    "concurrent_limit_exceeded": Reason.CONCURRENCY,
    "system_busy": Reason.OVERLOAD,  # theirs
    "rate_limit_exceeded": Reason.RATE,
    "quota_exceeded": Reason.SPENDING,
    "max_character_limit_exceeded": Reason.TOO_LARGE,
    "text_too_long": Reason.TOO_LARGE,
    "invalid_api_key": Reason.FORBIDDEN,
    "missing_permissions": Reason.FORBIDDEN,
    "detected_unusual_activity": Reason.FORBIDDEN,
}


def refusal(facts: Facts, now: float) -> Known | None:
    detail: Any = facts.body.get("detail") if isinstance(facts.body, Mapping) else None
    if not isinstance(detail, Mapping):
        return None
    words = [word for name in ("status", "code") if isinstance(word := detail.get(name), str)]
    reason = next((_WORDS[word] for word in words if word in _WORDS), None)
    if reason is None:
        return None
    said = detail.get("message")
    return Known(
        Refusal(
            reason=reason,
            retry_after=retry_after(facts, now),
            status=facts.status,
            text=said[:2000] if isinstance(said, str) else words[0],
        )
    )


def stated(facts: Facts, now: float) -> tuple[Stated, ...]:  # noqa: ARG001 - nothing here has a time
    most = number(facts.headers.get("maximum-concurrent-requests"))
    current = number(facts.headers.get("current-concurrent-requests"))
    if most is None:
        return ()
    left = None if current is None else max(0.0, most - current)
    return (Stated(unit="concurrent", window=AT_ONCE, limit=most, remaining=left),)
