"""What every adapter reads: one answer or error, without the library it came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidemill.core.refusals import CLIENT_ERROR

OK = 200


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """headers: names in small letters. body: decoded JSON, or None. text: the beginning of what was said.
    modules: the packages whose objects these were, such as "openai". raised: there was an exception.
    retries: calls the client made by itself before this one."""

    status: int | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: Any = None
    text: str = ""
    modules: frozenset[str] = frozenset()
    raised: bool = False
    retries: int = 0

    @property
    def failed(self) -> bool:
        """Only then may words be searched for a refusal: an answer may well speak of rate limits."""
        return self.raised or bool(self.error) or (self.status or OK) >= CLIENT_ERROR

    @property
    def error(self) -> Mapping[str, Any]:
        """The error object inside the body, wherever that keeps it."""
        body = self.body
        if not isinstance(body, Mapping):
            return {}
        inner = body.get("error")
        if isinstance(inner, Mapping):
            return inner
        # openai's client hands out the inner object as the body.
        return body if self.raised and ("message" in body or "code" in body) else {}

    @property
    def message(self) -> str:
        said = self.error.get("message")
        return said[:2000] if isinstance(said, str) and said else self.text

    def word(self, name: str) -> str:
        """A word of the error object, such as its code; "" when it has none."""
        value = self.error.get(name)
        return value if isinstance(value, str) else ""
