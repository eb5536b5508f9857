"""`Retry-After`, `RateLimit` and `RateLimit-Policy`: what any server may send.

Read in all three spellings the draft has had. A malformed field is ignored; `Retry-After` wins.
"""

from __future__ import annotations

import re

import msgspec

from tidemill.feedback.facts import Facts
from tidemill.feedback.parsing import LONGEST, duration, http_date, number
from tidemill.feedback.reading import Stated

_PAIR = re.compile(r"\b(limit|remaining|reset)\s*=\s*(\d{1,15})\b")
_UNITS = {"requests": "requests", "content-bytes": "bytes", "concurrent-requests": "concurrent"}
MOST_ITEMS = 16


class Policy(msgspec.Struct, frozen=True):
    quota: float
    window: float | None
    unit: str


def retry_after(facts: Facts, now: float) -> float | None:
    """Seconds, from a number, milliseconds, or a date (by the server's own clock when it tells it)."""
    if (milliseconds := number(facts.headers.get("retry-after-ms"))) is not None:
        return min(milliseconds / 1000, LONGEST)
    said = facts.headers.get("retry-after")
    if (seconds := duration(said)) is not None:
        return seconds
    if (date := http_date(said)) is None:
        return None
    return min(max(0.0, date - (http_date(facts.headers.get("date")) or now)), LONGEST)


def hint(facts: Facts, now: float) -> float | None:
    """`Retry-After`, else when a limit that has nothing left is whole again."""
    after = retry_after(facts, now)
    if after is not None:
        return after
    empty = [one.resets_at - now for one in stated(facts, now) if one.remaining == 0 and one.resets_at]
    return max(empty, default=None)


def stated(facts: Facts, now: float) -> tuple[Stated, ...]:
    policies = _policies(facts.headers.get("ratelimit-policy", ""))
    field = facts.headers.get("ratelimit", "")
    named = [_state(name, given, policies, now) for name, given in _items(field)]
    if found := [one for one in named if one is not None]:
        return tuple(found)
    single = dict(_PAIR.findall(field)) if "=" in field else {}
    for part in ("limit", "remaining", "reset"):
        single.setdefault(part, facts.headers.get(f"ratelimit-{part}", ""))
    return _single(single, policies, now)


def _policies(field: str) -> dict[str, Policy]:
    found = {}
    for name, given in _items(field):
        quota = number(given.get("q"))
        if quota is not None:
            unit = _UNITS.get(given.get("qu", "requests"), given.get("qu", "requests"))
            window = 0.0 if unit == "concurrent" else number(given.get("w"))
            found[name] = Policy(quota, window, unit)
        elif (quota := number(name)) is not None:  # the older spelling: 100;w=60
            found[name] = Policy(quota, number(given.get("w")), "requests")
    return found


def _state(name: str, given: dict[str, str], policies: dict[str, Policy], now: float) -> Stated | None:
    remaining, reset = number(given.get("r")), number(given.get("t"))
    if remaining is None:
        return None
    policy = policies.get(name)
    return Stated(
        unit=policy.unit if policy else "requests",
        window=policy.window if policy else None,
        limit=policy.quota if policy else None,
        remaining=remaining,
        resets_at=None if reset is None else now + min(reset, LONGEST),
    )


def _single(given: dict[str, str], policies: dict[str, Policy], now: float) -> tuple[Stated, ...]:
    limit, remaining = number(given["limit"].partition(",")[0]), number(given["remaining"])
    if limit is None and remaining is None:
        return ()
    reset = number(given["reset"])
    policy = next((one for one in policies.values() if limit in (None, one.quota)), None)
    return (
        Stated(
            unit="requests",
            window=policy.window if policy else None,
            limit=limit,
            remaining=remaining,
            resets_at=None if reset is None else now + min(reset, LONGEST),
        ),
    )


def _items(field: str) -> list[tuple[str, dict[str, str]]]:
    """`"name";a=1;b=2, "other";a=3`"""
    found = []
    for part in field.split(",")[:MOST_ITEMS]:
        name, *given = part.split(";")[:MOST_ITEMS]
        pairs = [one.partition("=") for one in given]
        if pairs and all(equals for _, equals, _ in pairs):
            found.append((_bare(name), {_bare(key): _bare(value) for key, _, value in pairs}))
    return found


def _bare(text: str) -> str:
    return text.strip().strip('"')
