"""The last resort: what the words of an error say (N4). Whole words only, never parts of an id."""

from __future__ import annotations

import re

from tidemill.core.refusals import Reason, Refusal
from tidemill.feedback.facts import Facts
from tidemill.feedback.parsing import duration

_ADDRESS = re.compile(r"\bhttps?://\S+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_QUOTA = re.compile(r"\bquotas?\b|\bresources? (?:has been )?exhausted\b")
_LIMITED = re.compile(
    r"(?:(?<![\w.#/=-])|\b(?:status|code|error) ?[=:])429(?![\w-]|\.\d)"
    r"|\brate limit(?:s|ed|ing)?\b|\btoo many requests\b"
)
_DAY = re.compile(r"\bper day\b|\bdaily\b|/ ?day\b")
_MINUTE = re.compile(r"\bper min(?:ute)?\b|\bper sec(?:ond)?\b|/ ?min(?:ute)?\b")
_NUMBER = r"\d+(?:\.\d+)?"
_UNIT = r"(?:ms|milliseconds?|seconds?|secs?|minutes?|mins?|hours?|[smhd])"
_HINT = re.compile(rf"\b(?:re)?try (?:again )?(?:in|after) (?:about )?((?:{_NUMBER} ?{_UNIT} ?)+)(?!\w)")
_LONG_UNITS = re.compile(r"(?<=\d)(ms|m|s|h|d)[a-z]*")
NO_API = (OSError, LookupError, TypeError, AttributeError, NameError, AssertionError, SyntaxError)
"""Errors of the program itself: a file called `daily quota.csv` that is missing is no refusal."""


def by_text(facts: Facts) -> Refusal | None:
    """A day or a minute only where the words speak of a refusal at all. A quota without either is a
    minute's first, and the day's when it comes again."""
    words = normal(facts.text if not facts.error else f"{facts.message} {facts.word('code')}")
    quota = _QUOTA.search(words) is not None
    if not quota and not _LIMITED.search(words):
        return None
    reason, after = Reason.UNKNOWN, hint_in(words)
    if _DAY.search(words):
        reason = Reason.DAY_QUOTA
    elif after is not None or _MINUTE.search(words):
        reason = Reason.RATE
    return Refusal(
        reason=reason,
        retry_after=after,
        status=facts.status,
        then=Reason.DAY_QUOTA if quota and reason is Reason.UNKNOWN else None,
        text=facts.message,
    )


def normal(text: str) -> str:
    """`RESOURCE_EXHAUSTED` and `RequestsPerDay` as words. An address is not what somebody said."""
    plain = _CAMEL.sub(" ", _ADDRESS.sub(" ", text))
    return re.sub(r"[\s_]+|(?<=[a-z])-(?=[a-z])", " ", plain).lower()


def hint_in(words: str) -> float | None:
    """`Please retry in 20.04s`, `try again in 6m0s`, `retry after 2 minutes`."""
    match = _HINT.search(words.lower())
    if match is None:
        return None
    short = re.sub(r"milliseconds?", "ms", match[1].replace(" ", ""))
    return duration(_LONG_UNITS.sub(r"\1", short))
