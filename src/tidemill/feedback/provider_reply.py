"""Turns a response or exception of any client library into a ProviderReply. Also defines the values that the
adapters read from a reply."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from types import MemberDescriptorType
from typing import Any, Literal

import msgspec

from tidemill.core.feedback import MIN_REFUSAL_STATUS, Refusal
from tidemill.core.needs import Units

HTTP_OK = 200


class ProviderReply(msgspec.Struct, frozen=True, kw_only=True):
    """The response of a provider, in the same form for all client libraries.

    - `headers` has lower-case names.
    - `body` is decoded JSON, None if there is none.
    - `text` is the beginning of the response or error text.
    - `modules` are the names of the client packages, such as "openai".
    - `raised` is True if the source is an exception.
    - `retries` is how many calls the client made before this one.
    """

    status: int | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: Any = None
    text: str = ""
    modules: frozenset[str] = frozenset()
    raised: bool = False
    retries: int = 0

    @property
    def failed(self) -> bool:
        """True if the call failed. Only the text of a failed call is searched for a refusal, because a good
        answer may mention rate limits."""
        return self.raised or bool(self.error) or (self.status or HTTP_OK) >= MIN_REFUSAL_STATUS

    @property
    def error(self) -> Mapping[str, Any]:
        """The error object inside the body, {} if there is none."""
        body = self.body
        if not isinstance(body, Mapping):
            return {}
        inner = body.get("error")
        if isinstance(inner, Mapping):
            return inner
        # openai's client exposes the inner error object as the body.
        return body if self.raised and ("message" in body or "code" in body) else {}

    @property
    def message(self) -> str:
        text = self.error.get("message")
        return text[:2000] if isinstance(text, str) and text else self.text

    def word(self, name: str) -> str:
        """Returns the text in the field `name` of the error object, such as its `code`. Returns "" if the
        field is missing or no text."""
        value = self.error.get(name)
        return value if isinstance(value, str) else ""


SendStatus = Literal["not sent", "unknown", "answered"]

CONCURRENT_WINDOW = 0.0
"""The window of a limit on concurrent calls."""


class StatedLimit(msgspec.Struct, frozen=True, kw_only=True):
    """One limit as the provider states it.

    - `window`: in seconds, 0 for a limit on concurrent calls, None if not stated.
    - `limit`: the amount of units per window.
    - `remaining`: how many units are left.
    - `resets_at`: the wall time at which the whole limit is free again.
    """

    unit: str
    window: float | None = None
    limit: float | None = None
    remaining: float | None = None
    resets_at: float | None = None


class ProviderFeedback(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was read from one reply.

    - `usage`: the units that the call used; None if the reply does not state them
    - `stated`: the limits that the provider states
    - `refusal`: the refusal; None if the reply is no refusal
    - `sent`: "answered", "not sent" if the call surely did not reach the provider, or "unknown"
    - `problems`: errors that the application's classifiers raised, for the log
    """

    usage: Units | None = None
    stated: tuple[StatedLimit, ...] = ()
    refusal: Refusal | None = None
    sent: SendStatus = "unknown"
    problems: tuple[str, ...] = ()


class RefusalVerdict(msgspec.Struct, frozen=True):
    """The answer of an adapter or classifier that recognises the reply. `refusal` is None if the reply is
    certainly no refusal."""

    refusal: Refusal | None


MAX_CAUSE_LINKS, MAX_GROUP_MEMBERS, MAX_HEADERS, MAX_USAGE_BLOCKS = 10, 50, 256, 3
MAX_PARSED_BODY_BYTES, BODY_END_BYTES, MAX_TEXT_CHARACTERS, MAX_HEADER_CHARACTERS = (
    262_144,
    16_384,
    8_192,
    4_096,
)
_RESPONSE_ATTRIBUTES = ("response", "http_response", "sdk_http_response", "raw_response")
_STATUS_ATTRIBUTES = ("status_code", "status", "code", "http_status")
_BODY_ATTRIBUTES = ("body", "details", "_content", "_body", "content", "text")
"""httpx, requests and aiohttp store a received body in `_content` or `_body`. Their public attributes
fetch, raise or must be awaited if the body has not arrived."""
_USAGE_ATTRIBUTES = ("usage", "usage_metadata", "usageMetadata", "meta")
_USAGE_COUNTS = (
    *("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens"),
    *("cache_creation_input_tokens", "cache_read_input_tokens"),
    *("prompt_token_count", "candidates_token_count", "thoughts_token_count", "total_token_count"),
    *("tool_use_prompt_token_count", "billed_units"),
)
_USAGE_IN_TEXT = re.compile(r'(?<!\\)"(usage|usageMetadata)"\s*:\s*(?=\{)')


def group_members(source: Any) -> Iterator[Any]:
    """Yields the members of an exception group, also of nested groups, at most 50. Yields the source itself
    if it is no group."""
    pending, found = [source], 0
    while pending and found < MAX_GROUP_MEMBERS:
        member = pending.pop(0)
        if isinstance(member, BaseExceptionGroup):
            pending = [*member.exceptions[:MAX_GROUP_MEMBERS], *pending]
        else:
            found += 1
            yield member


def unpack_reply(source: Any) -> ProviderReply:
    """Returns the reply that is contained in a response or exception. It searches the exception and its
    causes for the first one with a status, headers or a body."""
    chain = list(_causes(source))
    for link in chain:
        reply = _reply_of(link)
        if reply.status is not None or reply.body is not None or reply.headers:
            return msgspec.structs.replace(reply, raised=reply.raised or isinstance(source, BaseException))
    if isinstance(source, str):
        return ProviderReply(text=source[:MAX_TEXT_CHARACTERS], raised=True)
    errors = [link for link in chain if isinstance(link, BaseException)]
    text = "\n".join(_error_text(link) for link in errors)[:MAX_TEXT_CHARACTERS]
    return ProviderReply(text=text, raised=bool(errors), modules=frozenset(_module(link) for link in chain))


def safe_attribute(source: Any, name: str) -> Any:
    """Returns an attribute, None if it is missing or raises. It may run a property, so use it only for
    attributes that are cheap to read."""
    try:
        return getattr(source, name, None)
    except Exception:  # noqa: BLE001 - a property may raise anything
        return None


def stored_attribute(source: Any, name: str) -> Any:
    """Returns an attribute that is stored in the object, None if it is missing. It never runs a property,
    because a property may fetch data, warn or block."""
    try:
        found = inspect.getattr_static(source, name, None)
        if isinstance(found, MemberDescriptorType):
            return getattr(source, name, None)
    except Exception:  # noqa: BLE001 - unusual objects may raise here
        return None
    return None if hasattr(type(found), "__get__") else found


def _causes(source: Any) -> Iterator[Any]:
    link, seen = source, set[int]()
    while link is not None and id(link) not in seen and len(seen) < MAX_CAUSE_LINKS:
        seen.add(id(link))
        yield link
        link = link.__cause__ if isinstance(link, BaseException) else None


def _reply_of(source: Any) -> ProviderReply:
    if isinstance(source, tuple) and source and isinstance(source[0], int):
        status, headers, body = (*source, None, None)[:3]
        body, text = _decoded(body)
        return ProviderReply(status=_status(status), headers=_headers(headers), body=body, text=text)
    if isinstance(source, Mapping):
        return ProviderReply(body=source)
    if isinstance(source, str | bytes | int | float | list | tuple) or source is None:
        return ProviderReply()
    places = [
        source,
        *(found for name in _RESPONSE_ATTRIBUTES if _is_response(found := safe_attribute(source, name))),
    ]
    body, text = _body(places)
    raised = isinstance(source, BaseException)
    return ProviderReply(
        status=next((status for holder in reversed(places) if (status := _status_of(holder))), None),
        headers=next((found for holder in reversed(places) if (found := _headers_of(holder))), {}),
        body=body,
        text=text or (_error_text(source) if raised else ""),
        modules=frozenset(_module(holder) for holder in places),
        raised=raised,
        retries=_retries(source),
    )


def _is_response(found: Any) -> bool:
    return found is not None and not isinstance(found, str | bytes | int | Mapping) and not callable(found)


def _status_of(holder: Any) -> int | None:
    return next(
        (status for name in _STATUS_ATTRIBUTES if (status := _status(safe_attribute(holder, name)))), None
    )


def _status(value: Any) -> int | None:
    plain = isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599  # noqa: PLR2004
    return int(value) if plain else None


def _headers_of(holder: Any) -> dict[str, str]:
    return _headers(safe_attribute(holder, "headers"))


def _headers(value: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        items = value.items() if hasattr(value, "items") else (value or ())
        for count, (name, content) in enumerate(items):
            if count >= MAX_HEADERS:
                break
            found.setdefault(_header_text(name).lower(), _header_text(content)[:MAX_HEADER_CHARACTERS])
    except Exception:  # noqa: BLE001 - any other object: no headers
        return {}
    return found


def _header_text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _body(places: list[Any]) -> tuple[Any, str]:
    text = ""
    for holder in places:
        for name in _BODY_ATTRIBUTES:
            body, body_text = _decoded(stored_attribute(holder, name))
            text = text or body_text
            if body is not None:
                return body, text
        if usage := _usage_of(holder):
            return usage, ""
    return None, text


def _decoded(value: Any) -> tuple[Any, str]:
    """Returns the decoded JSON (None if it cannot be decoded) and the beginning of the text. Of a body over
    256 KiB only the usage near its ends is decoded."""
    if isinstance(value, Mapping):
        return value, ""
    if isinstance(value, list):
        # Gemini wraps a stream's error in a list.
        first = value[0] if len(value) == 1 else None
        return (first, "") if isinstance(first, Mapping) and "error" in first else (None, "")
    if not isinstance(value, str | bytes | bytearray) or not value:
        return None, ""
    if len(value) > MAX_PARSED_BODY_BYTES:
        return find_usage_at_ends(value), _text(value[:MAX_TEXT_CHARACTERS])
    try:
        decoded = msgspec.json.decode(value)
    except Exception:  # noqa: BLE001 - nested brackets raise RecursionError
        return None, _text(value[:MAX_TEXT_CHARACTERS])
    if isinstance(decoded, Mapping | list):
        return _decoded(decoded)[0], _text(value[:MAX_TEXT_CHARACTERS])
    return None, _text(value[:MAX_TEXT_CHARACTERS])


def find_usage_at_ends(value: str | bytes | bytearray) -> Any:
    for part in (_text(value[-BODY_END_BYTES:]), _text(value[:BODY_END_BYTES])):
        for match in list(_USAGE_IN_TEXT.finditer(part))[-MAX_USAGE_BLOCKS:]:
            try:
                found, _ = json.JSONDecoder().raw_decode(part, match.end())
            except (ValueError, RecursionError):
                continue
            return {match[1]: found}
    return None


def _usage_of(holder: Any) -> dict[str, Any] | None:
    """Returns the usage stored in a parsed response object, such as openai's ChatCompletion; None if there is
    none. The result is a dict with one field, such as `usage`."""
    for name in _USAGE_ATTRIBUTES:
        found = stored_attribute(holder, name)
        if isinstance(found, Mapping):
            return {name: found}
        counts = {
            count: value for count in _USAGE_COUNTS if (value := stored_attribute(found, count)) is not None
        }
        if counts:
            return {name: _with_billed_units(counts)}
    return None


def _with_billed_units(counts: dict[str, Any]) -> dict[str, Any]:
    billed = counts.get("billed_units")
    if billed is not None and not isinstance(billed, Mapping):
        inner = {
            count: value for count in _USAGE_COUNTS if (value := stored_attribute(billed, count)) is not None
        }
        return {**counts, "billed_units": inner}
    return counts


def _text(value: str | bytes | bytearray) -> str:
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")


def _error_text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:MAX_TEXT_CHARACTERS]
    except Exception:  # noqa: BLE001 - a user's __str__ may raise
        return type(error).__name__


def _module(source: Any) -> str:
    module = getattr(type(source), "__module__", "")
    if not isinstance(module, str):
        return ""
    return "google.genai" if module.startswith("google.genai") else module.partition(".")[0]


def _retries(source: Any) -> int:
    taken = stored_attribute(source, "retries_taken")
    return taken if isinstance(taken, int) and not isinstance(taken, bool) and taken > 0 else 0
