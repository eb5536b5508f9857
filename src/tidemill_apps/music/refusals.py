"""A refusal that says neither for how long nor for what. Whatever says more is left to those who know the
provider's words."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from tidemill import Reason, Refusal

TOO_MANY = 429
_SAYS_WHY = re.compile(
    r"retry-?delay|\b(?:re)?try (?:again )?(?:in|after)\b|per ?(?:day|hour|min|sec)|\bdaily\b|\bbilling\b",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"quota|exhausted|配额|额度|用完", re.IGNORECASE)
_LONGEST = 200  # characters of what was said, for people


def without_hint(error: object, seconds: float) -> Refusal | None:
    """Closes for `seconds`. If the answer has words of a quota and comes again after that, the day's quota is
    used up. Other answers never close the day: a proxy says 429 for many reasons."""
    response = getattr(error, "response", error)
    if getattr(response, "status_code", None) != TOO_MANY:
        return None
    headers: Mapping[str, str] = getattr(response, "headers", None) or {}
    said = str(getattr(response, "text", ""))
    if any(name.lower().startswith("retry-after") for name in headers):
        return None
    if _SAYS_WHY.search(said) or _has_a_code(said):
        return None
    return Refusal(
        reason=Reason.UNKNOWN,
        retry_after=seconds,
        then=Reason.DAY_QUOTA if _QUOTA.search(said) else None,
        status=TOO_MANY,
        text=said[:_LONGEST],
    )


def _has_a_code(said: str) -> bool:
    """A word for what it is, as OpenAI and those who speak like it have one. Gemini's code is the status
    again, and a number."""
    try:
        error = msgspec.json.decode(said, type=dict[str, object]).get("error")
    except msgspec.DecodeError:
        return False
    return isinstance(error, dict) and any(isinstance(error.get(name), str) for name in ("code", "type"))
