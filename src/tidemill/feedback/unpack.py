"""From anything a handler holds to facts, touching only what has been received already."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from types import MemberDescriptorType
from typing import Any

import msgspec

from tidemill.feedback.facts import Facts

MOST_LINKS, MOST_MEMBERS, MOST_HEADERS, MOST_USAGES = 10, 50, 256, 3
WHOLE_BODY, END_OF_BODY, LONGEST_TEXT, LONGEST_HEADER = 262_144, 16_384, 8_192, 4_096
_RESPONSES = ("response", "http_response", "sdk_http_response", "raw_response")
_STATUSES = ("status_code", "status", "code", "http_status")
_BODIES = ("body", "details", "_content", "_body", "content", "text")
"""`_content` and `_body` are where httpx, requests and aiohttp keep what has arrived; their public
attributes would fetch, raise or have to be awaited when it has not."""
_USAGES = ("usage", "usage_metadata", "usageMetadata", "meta")
_COUNTS = (
    *("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens"),
    *("cache_creation_input_tokens", "cache_read_input_tokens"),
    *("prompt_token_count", "candidates_token_count", "thoughts_token_count", "total_token_count"),
    *("tool_use_prompt_token_count", "billed_units"),
)
_USAGE_IN_TEXT = re.compile(r'(?<!\\)"(usage|usageMetadata)"\s*:\s*(?=\{)')


def members(source: Any) -> Iterator[Any]:
    """The source itself, or what an exception group holds."""
    pending, found = [source], 0
    while pending and found < MOST_MEMBERS:
        one = pending.pop(0)
        if isinstance(one, BaseExceptionGroup):
            pending = [*one.exceptions[:MOST_MEMBERS], *pending]
        else:
            found += 1
            yield one


def unpack(source: Any) -> Facts:
    """The first link of a chain of causes that says something; else only words."""
    chain = list(_causes(source))
    for one in chain:
        facts = _facts(one)
        if facts.status is not None or facts.body is not None or facts.headers:
            return msgspec.structs.replace(facts, raised=facts.raised or isinstance(source, BaseException))
    if isinstance(source, str):
        return Facts(text=source[:LONGEST_TEXT], raised=True)
    errors = [one for one in chain if isinstance(one, BaseException)]
    text = "\n".join(_words(one) for one in errors)[:LONGEST_TEXT]
    return Facts(text=text, raised=bool(errors), modules=frozenset(_module(one) for one in chain))


def attribute(one: Any, name: str) -> Any:
    """An attribute that costs nothing to ask for; None when it is missing or refuses."""
    try:
        return getattr(one, name, None)
    except Exception:  # noqa: BLE001 - a property may raise anything
        return None


def kept(one: Any, name: str) -> Any:
    """An attribute that is stored, never one that is computed: a property may fetch, warn or block."""
    try:
        found = inspect.getattr_static(one, name, None)
        if isinstance(found, MemberDescriptorType):
            return getattr(one, name, None)
    except Exception:  # noqa: BLE001 - objects may lie about themselves
        return None
    return None if hasattr(type(found), "__get__") else found


def _causes(source: Any) -> Iterator[Any]:
    one, seen = source, set[int]()
    while one is not None and id(one) not in seen and len(seen) < MOST_LINKS:
        seen.add(id(one))
        yield one
        one = one.__cause__ if isinstance(one, BaseException) else None


def _facts(one: Any) -> Facts:
    if isinstance(one, tuple) and one and isinstance(one[0], int):
        status, headers, body = (*one, None, None)[:3]
        body, text = _decoded(body)
        return Facts(status=_status(status), headers=_headers(headers), body=body, text=text)
    if isinstance(one, Mapping):
        return Facts(body=one)
    if isinstance(one, str | bytes | int | float | list | tuple) or one is None:
        return Facts()
    places = [one, *(found for name in _RESPONSES if _is_response(found := attribute(one, name)))]
    body, text = _body(places)
    raised = isinstance(one, BaseException)
    return Facts(
        status=next((status for place in reversed(places) if (status := _status_of(place))), None),
        headers=next((found for place in reversed(places) if (found := _headers_of(place))), {}),
        body=body,
        text=text or (_words(one) if raised else ""),
        modules=frozenset(_module(place) for place in places),
        raised=raised,
        retries=_retries(one),
    )


def _is_response(found: Any) -> bool:
    return found is not None and not isinstance(found, str | bytes | int | Mapping) and not callable(found)


def _status_of(place: Any) -> int | None:
    return next((status for name in _STATUSES if (status := _status(attribute(place, name)))), None)


def _status(value: Any) -> int | None:
    plain = isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599  # noqa: PLR2004
    return int(value) if plain else None


def _headers_of(place: Any) -> dict[str, str]:
    return _headers(attribute(place, "headers"))


def _headers(value: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        items = value.items() if hasattr(value, "items") else (value or ())
        for count, (name, said) in enumerate(items):
            if count >= MOST_HEADERS:
                break
            found.setdefault(_plain(name).lower(), _plain(said)[:LONGEST_HEADER])
    except Exception:  # noqa: BLE001 - whatever this is, it is no headers
        return {}
    return found


def _plain(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _body(places: list[Any]) -> tuple[Any, str]:
    text = ""
    for place in places:
        for name in _BODIES:
            body, said = _decoded(kept(place, name))
            text = text or said
            if body is not None:
                return body, text
        if usage := _usage_of(place):
            return usage, ""
    return None, text


def _decoded(value: Any) -> tuple[Any, str]:
    """JSON if it is, else the words. Of a huge one only the usage is looked for, at both ends."""
    if isinstance(value, Mapping):
        return value, ""
    if isinstance(value, list):
        # Gemini wraps the error of a stream in a list.
        first = value[0] if len(value) == 1 else None
        return (first, "") if isinstance(first, Mapping) and "error" in first else (None, "")
    if not isinstance(value, str | bytes | bytearray) or not value:
        return None, ""
    if len(value) > WHOLE_BODY:
        return usage_at_ends(value), _text(value[:LONGEST_TEXT])
    try:
        decoded = msgspec.json.decode(value)
    except Exception:  # noqa: BLE001 - also a RecursionError of nested brackets
        return None, _text(value[:LONGEST_TEXT])
    if isinstance(decoded, Mapping | list):
        return _decoded(decoded)[0], _text(value[:LONGEST_TEXT])
    return None, _text(value[:LONGEST_TEXT])


def usage_at_ends(value: str | bytes | bytearray) -> Any:
    for part in (_text(value[-END_OF_BODY:]), _text(value[:END_OF_BODY])):
        for match in list(_USAGE_IN_TEXT.finditer(part))[-MOST_USAGES:]:
            try:
                found, _ = json.JSONDecoder().raw_decode(part, match.end())
            except (ValueError, RecursionError):
                continue
            return {match[1]: found}
    return None


def _usage_of(place: Any) -> dict[str, Any] | None:
    """Of a parsed answer, such as openai's ChatCompletion or google-genai's GenerateContentResponse."""
    for name in _USAGES:
        found = kept(place, name)
        if isinstance(found, Mapping):
            return {name: found}
        counts = {count: value for count in _COUNTS if (value := kept(found, count)) is not None}
        if counts:
            return {name: _inner(counts)}
    return None


def _inner(counts: dict[str, Any]) -> dict[str, Any]:
    billed = counts.get("billed_units")
    if billed is not None and not isinstance(billed, Mapping):
        inner = {count: value for count in _COUNTS if (value := kept(billed, count)) is not None}
        return {**counts, "billed_units": inner}
    return counts


def _text(value: str | bytes | bytearray) -> str:
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:LONGEST_TEXT]
    except Exception:  # noqa: BLE001 - __str__ is the user's
        return type(error).__name__


def _module(one: Any) -> str:
    module = getattr(type(one), "__module__", "")
    if not isinstance(module, str):
        return ""
    return "google.genai" if module.startswith("google.genai") else module.partition(".")[0]


def _retries(one: Any) -> int:
    taken = kept(one, "retries_taken")
    return taken if isinstance(taken, int) and not isinstance(taken, bool) and taken > 0 else 0
