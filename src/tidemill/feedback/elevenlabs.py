"""The adapter for ElevenLabs. It reads `detail.status` or `detail.code`, and the concurrency limit from two
headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.core.feedback import Reason, Refusal
from tidemill.feedback.generic_http import parse_number, parse_retry_after
from tidemill.feedback.provider_reply import CONCURRENT_WINDOW, ProviderReply, RefusalVerdict, StatedLimit

_REASONS = {
    "too_many_concurrent_requests": Reason.CONCURRENCY,  # our limit
    "concurrent_limit_exceeded": Reason.CONCURRENCY,
    "system_busy": Reason.OVERLOAD,  # their overload
    "rate_limit_exceeded": Reason.RATE,
    "quota_exceeded": Reason.SPENDING,
    "max_character_limit_exceeded": Reason.TOO_LARGE,
    "text_too_long": Reason.TOO_LARGE,
    "invalid_api_key": Reason.FORBIDDEN,
    "missing_permissions": Reason.FORBIDDEN,
    "detected_unusual_activity": Reason.FORBIDDEN,
}


def find_refusal(reply: ProviderReply, now: float) -> RefusalVerdict | None:
    detail: Any = reply.body.get("detail") if isinstance(reply.body, Mapping) else None
    if not isinstance(detail, Mapping):
        return None
    words = [word for name in ("status", "code") if isinstance(word := detail.get(name), str)]
    reason = next((_REASONS[word] for word in words if word in _REASONS), None)
    if reason is None:
        return None
    message, seconds = detail.get("message"), parse_retry_after(reply, now)
    text = message[:2000] if isinstance(message, str) else words[0]
    return RefusalVerdict(Refusal(reason=reason, retry_after=seconds, status=reply.status, text=text))


def stated_limits(reply: ProviderReply, now: float) -> tuple[StatedLimit, ...]:  # noqa: ARG001 - no header has a time
    most = parse_number(reply.headers.get("maximum-concurrent-requests"))
    current = parse_number(reply.headers.get("current-concurrent-requests"))
    if most is None:
        return ()
    left = None if current is None else max(0.0, most - current)
    return (StatedLimit(unit="concurrent", window=CONCURRENT_WINDOW, limit=most, remaining=left),)
