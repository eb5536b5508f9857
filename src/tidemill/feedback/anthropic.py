"""Anthropic: `anthropic-ratelimit-*` headers and `error.type`."""

from __future__ import annotations

import re

from tidemill.core.calendars import Month, period_at
from tidemill.core.refusals import Reason, Refusal
from tidemill.feedback.facts import Facts
from tidemill.feedback.ietf import retry_after
from tidemill.feedback.parsing import moment, number
from tidemill.feedback.reading import Known, Stated
from tidemill.feedback.text import normal

TOO_MANY = 429
_UNITS = ("requests", "tokens", "input-tokens", "output-tokens")
_TYPES = {
    "rate_limit_error": Reason.RATE,
    "overloaded_error": Reason.OVERLOAD,
    "authentication_error": Reason.FORBIDDEN,
    "permission_error": Reason.FORBIDDEN,
    "billing_error": Reason.SPENDING,
    "request_too_large": Reason.TOO_LARGE,
}
_SAID_UNIT = re.compile(r"\b(input tokens|output tokens|tokens|requests) per minute\b")
_TOO_LONG = re.compile(r"\bprompt is too long\b|\bexceed(?:s|ed)? (?:the )?context (?:limit|window)\b")


def refusal(facts: Facts, now: float) -> Known | None:
    if not _spoken_by(facts):
        return None
    said = normal(facts.message)
    kind = facts.word("type")
    # A 429 whose body has not been received is still told by its headers.
    reason = _TYPES.get(kind) or (Reason.RATE if facts.status == TOO_MANY and not kind else None)
    if kind == "invalid_request_error":
        reason = _invalid(said)
        if reason is None:
            return Known(None)
    if reason is None:
        return None
    if reason is Reason.RATE:
        return Known(_rate(facts, said, now))
    after = retry_after(facts, now)
    return Known(Refusal(reason=reason, retry_after=after, status=facts.status, text=facts.message))


def stated(facts: Facts, now: float) -> tuple[Stated, ...]:  # noqa: ARG001 - resets are times here
    return tuple(one for unit in _UNITS if (one := _stated(facts, unit)) is not None)


def _spoken_by(facts: Facts) -> bool:
    """Others use the same words for types; the frame, a header or the client tells."""
    framed = isinstance(facts.body, dict) and facts.body.get("type") == "error"
    headed = any(name.startswith("anthropic-") for name in facts.headers)
    return framed or headed or "anthropic" in facts.modules


def _invalid(said: str) -> Reason | None:
    if _TOO_LONG.search(said):
        return Reason.TOO_LARGE
    return Reason.SPENDING if "credit balance is too low" in said else None


def _rate(facts: Facts, said: str, now: float) -> Refusal:
    """Without `retry-after` it is the month's spending cap, unless a limit is seen to be empty. An error
    inside a stream has no headers, so their absence says nothing."""
    after, empty = retry_after(facts, now), _empty(facts)
    if "concurrent connections" in said:
        return Refusal(reason=Reason.CONCURRENCY, retry_after=after, status=facts.status, text=facts.message)
    if after is None and not empty:
        ends = period_at(Month("UTC"), now).end if facts.headers else None
        reason = Reason.SPENDING if facts.headers else Reason.UNKNOWN
        return Refusal(reason=reason, resets_at=ends, status=facts.status, text=facts.message)
    match = _SAID_UNIT.search(said)
    short = match[1].replace(" ", "_") if match else (empty[0].unit if len(empty) == 1 else None)
    return Refusal(
        reason=Reason.RATE,
        unit=short,
        retry_after=after,
        resets_at=None if after is not None else max(one.resets_at or 0.0 for one in empty),
        status=facts.status,
        slow="acceleration" in said,
        text=facts.message,
    )


def _empty(facts: Facts) -> list[Stated]:
    return [one for one in stated(facts, 0.0) if one.remaining == 0 and one.resets_at is not None]


def _stated(facts: Facts, unit: str) -> Stated | None:
    limit, remaining, reset = (
        facts.headers.get(f"anthropic-ratelimit-{unit}-{part}") for part in ("limit", "remaining", "reset")
    )
    if number(limit) is None and number(remaining) is None:
        return None
    return Stated(
        unit=unit.replace("-", "_"),
        window=60.0,
        limit=number(limit),
        remaining=number(remaining),
        resets_at=moment(reset),
    )
