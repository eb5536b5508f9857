"""OpenAI, and the many that speak like it: `x-ratelimit-*` headers and `error.code`."""

from __future__ import annotations

import re

from tidemill.core.refusals import Reason, Refusal
from tidemill.feedback.facts import Facts
from tidemill.feedback.ietf import retry_after
from tidemill.feedback.parsing import duration, number
from tidemill.feedback.reading import Known, Stated
from tidemill.feedback.text import hint_in, normal

WINDOWS = (60.0, 3600.0, 86_400.0)
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


def refusal(facts: Facts, now: float) -> Known | None:
    code = next((word for name in ("code", "type") if (word := facts.word(name)) in _CODES), None)
    if code is None:
        return None
    said = normal(facts.message)
    reason = _CODES[code]
    if reason is Reason.RATE and "request too large" in said:
        reason = Reason.TOO_LARGE  # the code of a wait for what no wait will let through
    after = retry_after(facts, now)
    return Known(
        Refusal(
            reason=reason,
            unit=_unit(facts, said) if reason is Reason.RATE else None,
            retry_after=hint_in(said) if after is None else after,
            status=facts.status,
            slow=code == "slow_down",
            text=facts.message,
        )
    )


def stated(facts: Facts, now: float) -> tuple[Stated, ...]:
    return tuple(one for unit in ("requests", "tokens") if (one := _stated(facts, unit, now)) is not None)


def window_of(limit: float | None, remaining: float | None, reset: float | None) -> float | None:
    """The header does not say whether it counts minutes or days. `reset` is the time until all of it is
    back, at an even rate, so it does: reset * limit / (limit - remaining). What is left is rounded, so the
    result may be short of the truth by half."""
    if limit is None or remaining is None or reset is None or remaining >= limit or reset <= 0:
        return None
    found = reset * limit / (limit - remaining)
    return next((window for window in WINDOWS if 0.5 * window <= found <= 1.25 * window), None)


def _stated(facts: Facts, unit: str, now: float) -> Stated | None:
    limit = number(facts.headers.get(f"x-ratelimit-limit-{unit}"))
    remaining = number(facts.headers.get(f"x-ratelimit-remaining-{unit}"))
    reset = duration(facts.headers.get(f"x-ratelimit-reset-{unit}"))
    if limit is None and remaining is None:
        return None
    return Stated(
        unit=unit,
        window=window_of(limit, remaining, reset),
        limit=limit,
        remaining=remaining,
        resets_at=None if reset is None else now + reset,
    )


def _unit(facts: Facts, said: str) -> str | None:
    if (kind := facts.word("type")) in ("requests", "tokens"):
        return kind
    match = _UNIT.search(said)
    return match[1] if match else None
