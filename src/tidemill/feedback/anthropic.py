"""The adapter for Anthropic. It reads the `anthropic-ratelimit-*` headers and `error.type`."""

from __future__ import annotations

import re

from tidemill.core.calendars import Month, period_at
from tidemill.core.feedback import Reason, Refusal
from tidemill.feedback.generic_http import normalise_words, parse_number, parse_retry_after, parse_timestamp
from tidemill.feedback.provider_reply import ProviderReply, RefusalVerdict, StatedLimit

HTTP_TOO_MANY_REQUESTS = 429
_UNITS = ("requests", "tokens", "input-tokens", "output-tokens")
_ERROR_TYPES = {
    "rate_limit_error": Reason.RATE,
    "overloaded_error": Reason.OVERLOAD,
    "authentication_error": Reason.FORBIDDEN,
    "permission_error": Reason.FORBIDDEN,
    "billing_error": Reason.SPENDING,
    "request_too_large": Reason.TOO_LARGE,
}
_UNIT_IN_TEXT = re.compile(r"\b(input tokens|output tokens|tokens|requests) per minute\b")
_TOO_LONG = re.compile(r"\bprompt is too long\b|\bexceed(?:s|ed)? (?:the )?context (?:limit|window)\b")


def find_refusal(reply: ProviderReply, now: float) -> RefusalVerdict | None:
    if not _is_anthropic(reply):
        return None
    message = normalise_words(reply.message)
    kind = reply.word("type")
    # The headers also identify a 429 whose body has not arrived.
    reason = _ERROR_TYPES.get(kind) or (
        Reason.RATE if reply.status == HTTP_TOO_MANY_REQUESTS and not kind else None
    )
    if kind == "invalid_request_error":
        reason = _invalid_request_reason(message)
        if reason is None:
            return RefusalVerdict(None)
    if reason is None:
        return None
    if reason is Reason.RATE:
        return RefusalVerdict(_rate_refusal(reply, message, now))
    after = parse_retry_after(reply, now)
    return RefusalVerdict(Refusal(reason=reason, retry_after=after, status=reply.status, text=reply.message))


def stated_limits(reply: ProviderReply, now: float) -> tuple[StatedLimit, ...]:  # noqa: ARG001 - Anthropic sends reset times, not durations
    return tuple(limit for unit in _UNITS if (limit := _stated_limit(reply, unit)) is not None)


def _is_anthropic(reply: ProviderReply) -> bool:
    """True if the reply comes from Anthropic. The body must have `"type": "error"`, or a header or the client
    library must be Anthropic's."""
    framed = isinstance(reply.body, dict) and reply.body.get("type") == "error"
    headed = any(name.startswith("anthropic-") for name in reply.headers)
    return framed or headed or "anthropic" in reply.modules


def _invalid_request_reason(message: str) -> Reason | None:
    if _TOO_LONG.search(message):
        return Reason.TOO_LARGE
    return Reason.SPENDING if "credit balance is too low" in message else None


def _rate_refusal(reply: ProviderReply, message: str, now: float) -> Refusal:
    """Returns the refusal of a 429. `message` is the error message in lower case. If the headers have no
    `retry-after` and no empty limit, the monthly spending cap is reached. Without headers the reason is
    `UNKNOWN`."""
    after, empty = parse_retry_after(reply, now), _empty_limits(reply)
    if "concurrent connections" in message:
        return Refusal(reason=Reason.CONCURRENCY, retry_after=after, status=reply.status, text=reply.message)
    if after is None and not empty:
        month_end = period_at(Month("UTC"), now).end if reply.headers else None
        reason = Reason.SPENDING if reply.headers else Reason.UNKNOWN
        return Refusal(reason=reason, resets_at=month_end, status=reply.status, text=reply.message)
    match = _UNIT_IN_TEXT.search(message)
    short = match[1].replace(" ", "_") if match else (empty[0].unit if len(empty) == 1 else None)
    return Refusal(
        reason=Reason.RATE,
        unit=short,
        retry_after=after,
        resets_at=None if after is not None else max(limit.resets_at or 0.0 for limit in empty),
        status=reply.status,
        slow="acceleration" in message,
        text=reply.message,
    )


def _empty_limits(reply: ProviderReply) -> list[StatedLimit]:
    return [
        limit for limit in stated_limits(reply, 0.0) if limit.remaining == 0 and limit.resets_at is not None
    ]


def _stated_limit(reply: ProviderReply, unit: str) -> StatedLimit | None:
    limit, remaining, reset = (
        reply.headers.get(f"anthropic-ratelimit-{unit}-{part}") for part in ("limit", "remaining", "reset")
    )
    if parse_number(limit) is None and parse_number(remaining) is None:
        return None
    return StatedLimit(
        unit=unit.replace("-", "_"),
        window=60.0,
        limit=parse_number(limit),
        remaining=parse_number(remaining),
        resets_at=parse_timestamp(reset),
    )
