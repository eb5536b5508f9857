"""Reads a response or exception and returns its usage, limits and refusal as one ProviderFeedback. Asks the
application's classifiers first, then the provider adapters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from tidemill.core.feedback import MIN_REFUSAL_STATUS, Reason, Refusal
from tidemill.core.needs import Units
from tidemill.errors import DependencyUnavailable
from tidemill.feedback import anthropic, elevenlabs, gemini, generic_http, glm, openai
from tidemill.feedback.generic_http import (
    PROGRAM_ERRORS,
    parse_number,
    refusal_from_status,
    refusal_from_text,
)
from tidemill.feedback.provider_reply import (
    ProviderFeedback,
    ProviderReply,
    RefusalVerdict,
    SendStatus,
    StatedLimit,
    group_members,
    unpack_reply,
)
from tidemill.feedback.send_status import UNCERTAIN_STATUSES, send_status


def find_usage(reply: ProviderReply) -> Units | None:
    """Returns the units that the reply states, None if it states none. The units may be `tokens`,
    `input_tokens`, `output_tokens`, `characters` and `requests`."""
    units = _tokens(reply.body) if isinstance(reply.body, Mapping) else {}
    if (characters := parse_number(reply.headers.get("character-cost"))) is not None:
        units["characters"] = characters
    if reply.retries:
        # A client that retried made more calls than were reserved.
        units["requests"] = 1.0 + reply.retries
    return units or None


def _tokens(body: Mapping[str, Any]) -> Units:
    google = body.get("usageMetadata") or body.get("usage_metadata")
    if isinstance(google, Mapping):
        return _gemini_usage(google)
    usage = body.get("usage")
    if not isinstance(usage, Mapping):
        # In streams, Anthropic puts usage into the message and OpenAI into the response.
        inner = body.get("message") or body.get("response")
        usage = inner.get("usage") if isinstance(inner, Mapping) else None
    if isinstance(usage, Mapping):
        return _openai_usage(usage) if _first(usage, "total_tokens") is not None else _anthropic_usage(usage)
    meta = body.get("meta")
    billed = meta.get("billed_units") if isinstance(meta, Mapping) else None
    return _anthropic_usage(billed) if isinstance(billed, Mapping) else {}


def _openai_usage(usage: Mapping[str, Any]) -> Units:
    return _units(
        _first(usage, "total_tokens"),
        _first(usage, "prompt_tokens", "input_tokens"),
        _first(usage, "completion_tokens", "output_tokens"),
    )


def _anthropic_usage(usage: Mapping[str, Any]) -> Units:
    """Returns the token counts of an Anthropic usage object. Tokens written to the cache count as input;
    tokens read from the cache do not count."""
    plain = _first(usage, "input_tokens", "prompt_tokens")
    written = _first(usage, "cache_creation_input_tokens")
    output = _first(usage, "output_tokens", "completion_tokens")
    input_tokens = None if plain is None and written is None else (plain or 0.0) + (written or 0.0)
    total = None if input_tokens is None and output is None else (input_tokens or 0.0) + (output or 0.0)
    return _units(total, input_tokens, output)


def _gemini_usage(usage: Mapping[str, Any]) -> Units:
    prompt = _first(usage, "promptTokenCount", "prompt_token_count")
    tools = _first(usage, "toolUsePromptTokenCount", "tool_use_prompt_token_count")
    answer = _first(usage, "candidatesTokenCount", "candidates_token_count")
    thoughts = _first(usage, "thoughtsTokenCount", "thoughts_token_count")
    total = _first(usage, "totalTokenCount", "total_token_count")
    input_tokens = None if prompt is None and tools is None else (prompt or 0.0) + (tools or 0.0)
    output = None if answer is None and thoughts is None else (answer or 0.0) + (thoughts or 0.0)
    if total is None and (input_tokens is not None or output is not None):
        total = (input_tokens or 0.0) + (output or 0.0)
    return _units(total, input_tokens, output)


def _units(total: float | None, input_tokens: float | None, output: float | None) -> Units:
    named = {"tokens": total, "input_tokens": input_tokens, "output_tokens": output}
    return {unit: amount for unit, amount in named.items() if amount is not None}


def _first(usage: Mapping[str, Any], *names: str) -> float | None:
    return next((found for name in names if (found := parse_number(usage.get(name))) is not None), None)


Classifier = Callable[[Any], Refusal | Literal[False] | None]
"""Gets the response or exception. Returns a Refusal, False for "no refusal", or None to ask the next one."""

_REFUSAL_ADAPTERS: tuple[Callable[[ProviderReply, float], RefusalVerdict | None], ...] = (
    glm.find_refusal,
    gemini.find_refusal,
    anthropic.find_refusal,
    elevenlabs.find_refusal,
    openai.find_refusal,
)
_LIMIT_ADAPTERS: tuple[Callable[[ProviderReply, float], tuple[StatedLimit, ...]], ...] = (
    anthropic.stated_limits,
    gemini.stated_limits,
    openai.stated_limits,
    elevenlabs.stated_limits,
    generic_http.stated_limits,
)
_AMBIGUOUS_STATUSES = (None, 403, 429)
"""Statuses whose meaning the text can decide: no status, a 429 without details, and the 403 that some
providers use for a quota."""
_REASONS_BY_SEVERITY = (
    *(Reason.TOO_LARGE, Reason.CONCURRENCY, Reason.RATE, Reason.UNKNOWN, Reason.OVERLOAD),
    *(Reason.STATED, Reason.DAY_QUOTA, Reason.SPENDING, Reason.FORBIDDEN),
)


def read_feedback(source: Any, *, now: float, classifiers: Sequence[Classifier] = ()) -> ProviderFeedback:
    """Returns the usage, limits and refusal that a response or exception states. The members of an exception
    group are merged. `classifiers` are functions of the application, asked before the provider adapters. It
    never raises and never waits."""
    try:
        readings = [_read_one(member, now, classifiers) for member in group_members(source)]
    except Exception as error:  # noqa: BLE001 - feedback must not fail a finished job
        return ProviderFeedback(problems=(f"reading {type(source).__name__}: {_describe_error(error)}",))
    return readings[0] if len(readings) == 1 else _merge_feedback(readings)


def _read_one(source: Any, now: float, classifiers: Sequence[Classifier]) -> ProviderFeedback:
    reply = unpack_reply(source)
    known, problems = _ask_classifiers(source, classifiers)
    if known is None:
        known = RefusalVerdict(_find_refusal(source, reply, now) if reply.failed else None)
    return ProviderFeedback(
        usage=find_usage(reply),
        stated=next((found for reader in _LIMIT_ADAPTERS if (found := reader(reply, now))), ()),
        refusal=known.refusal,
        sent=_send_status(source, reply),
        problems=problems,
    )


def _ask_classifiers(
    source: Any, classifiers: Sequence[Classifier]
) -> tuple[RefusalVerdict | None, tuple[str, ...]]:
    problems: list[str] = []
    for classifier in classifiers:
        name = getattr(classifier, "__qualname__", repr(classifier))
        try:
            answer: Any = classifier(source)
        except Exception as error:  # noqa: BLE001 - reported; the next classifier is asked
            problems.append(f"classifier {name} raised {_describe_error(error)}")
            continue
        if isinstance(answer, Refusal):
            return RefusalVerdict(answer), tuple(problems)
        if answer is False:
            return RefusalVerdict(None), tuple(problems)
        if inspect.iscoroutine(answer):
            answer.close()
        if answer is not None:
            problems.append(
                f"classifier {name} must return a Refusal, False or None, not {type(answer).__name__}"
            )
    return None, tuple(problems)


def _find_refusal(source: Any, reply: ProviderReply, now: float) -> Refusal | None:
    for adapter in _REFUSAL_ADAPTERS:
        if (known := adapter(reply, now)) is not None:
            return known.refusal
    plain = refusal_from_status(reply, now)
    if reply.status not in _AMBIGUOUS_STATUSES or _is_program_error(source, reply):
        return plain
    refusal = refusal_from_text(reply)
    if refusal is None:
        return plain
    if plain is None or plain.reason is Reason.FORBIDDEN:
        return refusal
    # A day quota from the text beats the header's hint, which stays as a lower bound.
    after = refusal.retry_after if plain.retry_after is None else plain.retry_after
    if refusal.reason is Reason.UNKNOWN or (refusal.reason is Reason.RATE and plain.reason is Reason.STATED):
        return replace(
            plain, retry_after=after, then=refusal.then if plain.reason is Reason.UNKNOWN else None
        )
    return replace(refusal, retry_after=after)


def _is_program_error(source: Any, reply: ProviderReply) -> bool:
    builtin = type(source).__module__ == "builtins"
    return reply.status is None and builtin and isinstance(source, PROGRAM_ERRORS)


def _send_status(source: Any, reply: ProviderReply) -> SendStatus:
    if reply.status is not None:
        return "unknown" if reply.status in UNCERTAIN_STATUSES else "answered"
    if isinstance(source, BaseException):
        return send_status(source)
    return "answered" if reply.body is not None or reply.headers else "unknown"


def _merge_feedback(readings: list[ProviderFeedback]) -> ProviderFeedback:
    """Returns the combined feedback of several calls. Usage is added up, and all stated limits are kept. Of
    several refusals the most severe is kept; if equal, the refusal with the latest reset."""
    refusals = [reading.refusal for reading in readings if reading.refusal is not None]
    statuses: set[SendStatus] = {reading.sent for reading in readings}
    return ProviderFeedback(
        usage=_sum_usage([reading.usage for reading in readings if reading.usage]),
        stated=tuple(stated for reading in readings for stated in reading.stated),
        refusal=max(refusals, key=_severity, default=None),
        sent=statuses.pop() if len(statuses) == 1 else "unknown",
        problems=tuple(problem for reading in readings for problem in reading.problems),
    )


def _severity(refusal: Refusal) -> tuple[int, float, float]:
    return _REASONS_BY_SEVERITY.index(refusal.reason), refusal.resets_at or 0.0, refusal.retry_after or 0.0


def _sum_usage(usages: list[Units]) -> Units | None:
    units = {unit for usage in usages for unit in usage}
    return {unit: sum(usage.get(unit, 0.0) for usage in usages) for unit in sorted(units)} or None


def _describe_error(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:500]
    except Exception:  # noqa: BLE001 - a user's __str__ may raise
        return type(error).__name__


def is_known_unpaid(error: BaseException, *, now: float) -> bool:
    """True if the failed call certainly cost nothing: it was never sent, or the provider answered its first
    try with an error. Of an exception group, this must be true for every member."""
    if not isinstance(error, Exception):
        return False  # the process or the attempt ends in the middle of a call
    if isinstance(error, DependencyUnavailable):
        return True
    found = list(group_members(error))
    return bool(found) and all(_is_unpaid(member, now) for member in found)


def _is_unpaid(error: BaseException, now: float) -> bool:
    reading = read_feedback(error, now=now)
    if reading.sent != "answered":
        return reading.sent == "not sent"
    reply = unpack_reply(error)
    # After retries of the client, an earlier call may have been served and billed.
    refused = reading.refusal is not None or (reply.status or 0) >= MIN_REFUSAL_STATUS
    return refused and not reply.retries
