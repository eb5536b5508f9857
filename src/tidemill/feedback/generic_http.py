"""The adapter for any HTTP API. It reads Retry-After, RateLimit headers, status codes and words in error
texts."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import msgspec

from tidemill.core.feedback import Reason, Refusal
from tidemill.feedback.provider_reply import ProviderReply, StatedLimit

MAX_WAIT_SECONDS = 366 * 86_400.0
"""A hint of more than a year is treated as the provider's mistake."""
_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_PLAIN_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")


def parse_number(value: Any) -> float | None:
    """Returns the value as a float if it is a number of 0 or more, also as text. Returns None for any other
    value."""
    if isinstance(value, str):
        text = value.strip()
        return float(text) if _PLAIN_NUMBER.fullmatch(text) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value < 1e15 else None  # noqa: PLR2004 - as above


def parse_duration(value: Any) -> float | None:
    """Returns the seconds (at most a year) of `20`, `6m0s`, `12ms` or `{"seconds": 20}`; None if invalid."""
    if isinstance(value, dict):
        seconds, nanos = parse_number(value.get("seconds", 0)), parse_number(value.get("nanos", 0))
        return None if seconds is None or nanos is None else _cap_wait(seconds + nanos / 1e9)
    plain = parse_number(value)
    if plain is not None:
        return _cap_wait(plain)
    if not isinstance(value, str) or len(value) > 64:  # noqa: PLR2004 - no duration is this long
        return None
    text = value.strip().lower().replace(" ", "")
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(amount + unit for amount, unit in parts) != text:
        return None
    return _cap_wait(sum(float(amount) * _SECONDS_PER_UNIT[unit] for amount, unit in parts))


def parse_timestamp(value: Any) -> float | None:
    """Returns the wall time of an RFC 3339 text, None if it cannot be parsed. A time without an offset is
    taken as UTC."""
    if not isinstance(value, str) or len(value) > 64:  # noqa: PLR2004 - as above
        return None
    try:
        parsed = datetime.fromisoformat(value.strip())
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def parse_http_date(value: Any) -> float | None:
    if not isinstance(value, str) or len(value) > 64:  # noqa: PLR2004 - as above
        return None
    try:
        parsed = parsedate_to_datetime(value.strip())
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, OSError, IndexError):
        return None


def _cap_wait(seconds: float) -> float:
    return min(seconds, MAX_WAIT_SECONDS)


_LIMIT_PAIR = re.compile(r"\b(limit|remaining|reset)\s*=\s*(\d{1,15})\b")
_QUOTA_UNITS = {"requests": "requests", "content-bytes": "bytes", "concurrent-requests": "concurrent"}
MAX_HEADER_ITEMS = 16
MIN_UNIX_TIME, MIN_UNIX_MILLISECONDS = 1e9, 1e11
"""A larger number in a reset header is a Unix time (after 2001), in seconds or in milliseconds. It is not a
wait of 30 years."""


class RateLimitPolicy(msgspec.Struct, frozen=True):
    quota: float
    window: float | None
    unit: str


def parse_retry_after(reply: ProviderReply, now: float) -> float | None:
    """Returns the seconds to wait that the headers `retry-after-ms` or `retry-after` state; None if there are
    none. A date counts from the server's Date header, or from the wall time `now`."""
    if (milliseconds := parse_number(reply.headers.get("retry-after-ms"))) is not None:
        return min(milliseconds / 1000, MAX_WAIT_SECONDS)
    value = reply.headers.get("retry-after")
    if (seconds := parse_duration(value)) is not None:
        return seconds
    if (date := parse_http_date(value)) is None:
        return None
    return min(max(0.0, date - (parse_http_date(reply.headers.get("date")) or now)), MAX_WAIT_SECONDS)


def wait_hint(reply: ProviderReply, now: float) -> float | None:
    """Returns the seconds to wait that the reply asks for; None if it does not say. Without a Retry-After
    header, these are the seconds until all empty limits have reset."""
    after = parse_retry_after(reply, now)
    if after is not None:
        return after
    stated = stated_limits(reply, now)
    empty = [limit.resets_at - now for limit in stated if limit.remaining == 0 and limit.resets_at]
    if not stated and reply.status == HTTPStatus.TOO_MANY_REQUESTS:
        reset = _parse_reset(_plain_header(reply, "reset"), now)
        empty += [] if reset is None else [reset - now]
    return max(empty, default=None)


def stated_limits(reply: ProviderReply, now: float) -> tuple[StatedLimit, ...]:
    policies = _policies(reply.headers.get("ratelimit-policy", ""))
    field = reply.headers.get("ratelimit", "")
    named = [_named_limit(name, parameters, policies, now) for name, parameters in _header_items(field)]
    if found := [limit for limit in named if limit is not None]:
        return tuple(found)
    single = dict(_LIMIT_PAIR.findall(field)) if "=" in field else {}
    for part in ("limit", "remaining", "reset"):
        single.setdefault(part, _plain_header(reply, part))
    return _unnamed_limit(single, policies, now)


def _policies(field: str) -> dict[str, RateLimitPolicy]:
    found = {}
    for name, parameters in _header_items(field):
        quota = parse_number(parameters.get("q"))
        if quota is not None:
            unit = _QUOTA_UNITS.get(parameters.get("qu", "requests"), parameters.get("qu", "requests"))
            window = 0.0 if unit == "concurrent" else parse_number(parameters.get("w"))
            found[name] = RateLimitPolicy(quota, window, unit)
        elif (quota := parse_number(name)) is not None:  # the older syntax: 100;w=60
            found[name] = RateLimitPolicy(quota, parse_number(parameters.get("w")), "requests")
    return found


def _named_limit(
    name: str, parameters: dict[str, str], policies: dict[str, RateLimitPolicy], now: float
) -> StatedLimit | None:
    remaining, reset = parse_number(parameters.get("r")), parse_number(parameters.get("t"))
    if remaining is None:
        return None
    policy = policies.get(name)
    return StatedLimit(
        unit=policy.unit if policy else "requests",
        window=policy.window if policy else None,
        limit=policy.quota if policy else None,
        remaining=remaining,
        resets_at=None if reset is None else now + min(reset, MAX_WAIT_SECONDS),
    )


def _unnamed_limit(
    parameters: dict[str, str], policies: dict[str, RateLimitPolicy], now: float
) -> tuple[StatedLimit, ...]:
    limit, remaining = (
        parse_number(parameters["limit"].partition(",")[0]),
        parse_number(parameters["remaining"]),
    )
    if limit is None and remaining is None:
        return ()
    policy = next((known for known in policies.values() if limit in (None, known.quota)), None)
    return (
        StatedLimit(
            unit="requests",
            window=policy.window if policy else None,
            limit=limit,
            remaining=remaining,
            resets_at=_parse_reset(parameters["reset"], now),
        ),
    )


def _plain_header(reply: ProviderReply, part: str) -> str:
    """Returns the header `ratelimit-…` or `x-ratelimit-…`; '' if there is none."""
    return reply.headers.get(f"ratelimit-{part}") or reply.headers.get(f"x-ratelimit-{part}", "")


def _parse_reset(value: str, now: float) -> float | None:
    """Returns the wall time of a reset header; None if it is no number. The header has the seconds until
    then, or a Unix time, which is a much larger number."""
    reset = parse_number(value)
    if reset is None:
        return None
    if reset > MIN_UNIX_MILLISECONDS:
        reset /= 1000
    seconds = max(0.0, reset - now) if reset > MIN_UNIX_TIME else reset
    return now + min(seconds, MAX_WAIT_SECONDS)


def _header_items(field: str) -> list[tuple[str, dict[str, str]]]:
    """Parses a header such as `"name";a=1;b=2, "other";a=3`. Returns a list of pairs: a name and a dict of
    its parameters."""
    found = []
    for part in field.split(",")[:MAX_HEADER_ITEMS]:
        name, *parameters = part.split(";")[:MAX_HEADER_ITEMS]
        pairs = [parameter.partition("=") for parameter in parameters]
        if pairs and all(equals for _, equals, _ in pairs):
            found.append((_unquote(name), {_unquote(key): _unquote(value) for key, _, value in pairs}))
    return found


def _unquote(text: str) -> str:
    return text.strip().strip('"')


_URL = re.compile(r"\bhttps?://\S+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_QUOTA = re.compile(r"\bquotas?\b|\bresources? (?:has been )?exhausted\b")
_RATE_LIMITED = re.compile(
    r"(?:(?<![\w.#/=-])|\b(?:status|code|error) ?[=:])429(?![\w-]|\.\d)"
    r"|\brate limit(?:s|ed|ing)?\b|\btoo many requests\b"
)
_DAY = re.compile(r"\bper day\b|\bdaily\b|/ ?day\b")
_MINUTE = re.compile(r"\bper min(?:ute)?\b|\bper sec(?:ond)?\b|/ ?min(?:ute)?\b")
_NUMBER = r"\d+(?:\.\d+)?"
_UNIT = r"(?:ms|milliseconds?|seconds?|secs?|minutes?|mins?|hours?|[smhd])"
_RETRY_HINT = re.compile(
    rf"\b(?:re)?try (?:again )?(?:in|after) (?:about )?((?:{_NUMBER} ?{_UNIT} ?)+)(?!\w)"
)
_LONG_UNITS = re.compile(r"(?<=\d)(ms|m|s|h|d)[a-z]*")
PROGRAM_ERRORS = (OSError, LookupError, TypeError, AttributeError, NameError, AssertionError, SyntaxError)
"""Errors of the program. A missing file called `daily quota.csv` is not a refusal."""


def refusal_from_text(reply: ProviderReply) -> Refusal | None:
    """Returns the refusal that the error text describes; None if no words in the text mean a refusal. If the
    text mentions a quota without its period, the reason is unknown."""
    words = normalise_words(reply.text if not reply.error else f"{reply.message} {reply.word('code')}")
    quota = _QUOTA.search(words) is not None
    if not quota and not _RATE_LIMITED.search(words):
        return None
    reason, after = Reason.UNKNOWN, retry_hint_in(words)
    if _DAY.search(words):
        reason = Reason.DAY_QUOTA
    elif after is not None or _MINUTE.search(words):
        reason = Reason.RATE
    return Refusal(
        reason=reason,
        retry_after=after,
        status=reply.status,
        then=Reason.DAY_QUOTA if quota and reason is Reason.UNKNOWN else None,
        text=reply.message,
    )


def normalise_words(text: str) -> str:
    """Returns the text in lower-case words. `RESOURCE_EXHAUSTED` becomes `resource exhausted` and
    `RequestsPerDay` becomes `requests per day`. URLs are removed, because their words are not part of the
    message."""
    plain = _CAMEL.sub(" ", _URL.sub(" ", text))
    return re.sub(r"[\s_]+|(?<=[a-z])-(?=[a-z])", " ", plain).lower()


def retry_hint_in(words: str) -> float | None:
    """Returns the seconds of a hint such as `Please retry in 20.04s`, `try again in 6m0s` or `retry after 2
    minutes`. Returns None if there is no hint."""
    match = _RETRY_HINT.search(words.lower())
    if match is None:
        return None
    short = re.sub(r"milliseconds?", "ms", match[1].replace(" ", ""))
    return parse_duration(_LONG_UNITS.sub(r"\1", short))


MAX_RATE_WAIT_SECONDS = 900.0
"""A longer hint is not a rate limit per minute: the provider states when it is available again."""

_REASONS_BY_STATUS = {
    401: Reason.FORBIDDEN,
    402: Reason.SPENDING,
    403: Reason.FORBIDDEN,
    413: Reason.TOO_LARGE,
    429: Reason.UNKNOWN,
    503: Reason.OVERLOAD,
    529: Reason.OVERLOAD,
}


def refusal_from_status(reply: ProviderReply, now: float) -> Refusal | None:
    reason = None if reply.status is None else _REASONS_BY_STATUS.get(reply.status)
    if reason is None:
        return None
    after = wait_hint(reply, now)
    if reason is Reason.UNKNOWN and after is not None:
        reason = Reason.RATE if after <= MAX_RATE_WAIT_SECONDS else Reason.STATED
    bare = reason is Reason.FORBIDDEN
    return Refusal(reason=reason, retry_after=after, status=reply.status, text=reply.message, bare=bare)
