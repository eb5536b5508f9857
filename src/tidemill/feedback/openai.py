"""The adapter for OpenAI and compatible providers. It reads the `x-ratelimit-*` headers and `error.code`."""

from __future__ import annotations

import re

from tidemill.core.feedback import Reason, Refusal
from tidemill.feedback.generic_http import (
    normalise_words,
    parse_duration,
    parse_number,
    parse_retry_after,
    retry_hint_in,
)
from tidemill.feedback.provider_reply import ProviderReply, RefusalVerdict, StatedLimit

WINDOW_SECONDS = (60.0, 3600.0, 86_400.0)
_CODES = {
    "rate_limit_exceeded": Reason.RATE,
    "insufficient_quota": Reason.SPENDING,
    "billing_hard_limit_reached": Reason.SPENDING,
    "billing_not_active": Reason.SPENDING,
    "slow_down": Reason.OVERLOAD,
    "server_overloaded": Reason.OVERLOAD,
    "engine_overloaded": Reason.OVERLOAD,
    "context_length_exceeded": Reason.TOO_LARGE,
    "string_above_max_length": Reason.TOO_LARGE,
    "invalid_api_key": Reason.FORBIDDEN,
    "account_deactivated": Reason.FORBIDDEN,
    "unsupported_country_region_territory": Reason.FORBIDDEN,
}
_UNIT = re.compile(r"\b(tokens|requests) per (?:min|day|minute|hour)\b")


def find_refusal(reply: ProviderReply, now: float) -> RefusalVerdict | None:
    code = next((word for name in ("code", "type") if (word := reply.word(name)) in _CODES), None)
    if code is None:
        return None
    message = normalise_words(reply.message)
    reason = _CODES[code]
    if reason is Reason.RATE and "request too large" in message:
        reason = Reason.TOO_LARGE  # has the code of a rate limit, but waiting does not help
    after = parse_retry_after(reply, now)
    return RefusalVerdict(
        Refusal(
            reason=reason,
            unit=_unit(reply, message) if reason is Reason.RATE else None,
            retry_after=retry_hint_in(message) if after is None else after,
            status=reply.status,
            slow=code == "slow_down",
            text=reply.message,
        )
    )


def stated_limits(reply: ProviderReply, now: float) -> tuple[StatedLimit, ...]:
    return tuple(
        limit for unit in ("requests", "tokens") if (limit := _stated_limit(reply, unit, now)) is not None
    )


def guess_window(limit: float | None, remaining: float | None, reset: float | None) -> float | None:
    """Returns the window of a limit in seconds: a minute, an hour or a day; None if it cannot be guessed. The
    headers do not state the window. It is about `reset * limit / (limit - remaining)`, because used units
    become free at an even rate."""
    if limit is None or remaining is None or reset is None or remaining >= limit or reset <= 0:
        return None
    found = reset * limit / (limit - remaining)
    return next((window for window in WINDOW_SECONDS if 0.5 * window <= found <= 1.25 * window), None)


def _stated_limit(reply: ProviderReply, unit: str, now: float) -> StatedLimit | None:
    limit = parse_number(reply.headers.get(f"x-ratelimit-limit-{unit}"))
    remaining = parse_number(reply.headers.get(f"x-ratelimit-remaining-{unit}"))
    reset = parse_duration(reply.headers.get(f"x-ratelimit-reset-{unit}"))
    if limit is None and remaining is None:
        return None
    return StatedLimit(
        unit=unit,
        window=guess_window(limit, remaining, reset),
        limit=limit,
        remaining=remaining,
        resets_at=None if reset is None else now + reset,
    )


def _unit(reply: ProviderReply, message: str) -> str | None:
    if (kind := reply.word("type")) in ("requests", "tokens"):
        return kind
    match = _UNIT.search(message)
    return match[1] if match else None
