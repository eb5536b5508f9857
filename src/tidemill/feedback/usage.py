"""What a call really cost, from the usage block of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.core.units import Units
from tidemill.feedback.facts import Facts
from tidemill.feedback.parsing import number


def usage_of(facts: Facts) -> Units | None:
    """Tokens in all, in and out, as far as they were said."""
    units = _tokens(facts.body) if isinstance(facts.body, Mapping) else {}
    if (characters := number(facts.headers.get("character-cost"))) is not None:
        units["characters"] = characters
    if facts.retries:
        # A client that tries again by itself has made more calls than were reserved.
        units["requests"] = 1.0 + facts.retries
    return units or None


def _tokens(body: Mapping[str, Any]) -> Units:
    google = body.get("usageMetadata") or body.get("usage_metadata")
    if isinstance(google, Mapping):
        return _gemini(google)
    usage = body.get("usage")
    if not isinstance(usage, Mapping):
        # A stream of Anthropic's carries it in the message, one of OpenAI's in the response.
        inner = body.get("message") or body.get("response")
        usage = inner.get("usage") if isinstance(inner, Mapping) else None
    if isinstance(usage, Mapping):
        return _openai(usage) if _first(usage, "total_tokens") is not None else _anthropic(usage)
    meta = body.get("meta")
    billed = meta.get("billed_units") if isinstance(meta, Mapping) else None
    return _anthropic(billed) if isinstance(billed, Mapping) else {}


def _openai(usage: Mapping[str, Any]) -> Units:
    return _units(
        _first(usage, "total_tokens"),
        _first(usage, "prompt_tokens", "input_tokens"),
        _first(usage, "completion_tokens", "output_tokens"),
    )


def _anthropic(usage: Mapping[str, Any]) -> Units:
    """Writing the cache counts as input, reading it does not."""
    plain = _first(usage, "input_tokens", "prompt_tokens")
    written = _first(usage, "cache_creation_input_tokens")
    output = _first(usage, "output_tokens", "completion_tokens")
    given = None if plain is None and written is None else (plain or 0.0) + (written or 0.0)
    total = None if given is None and output is None else (given or 0.0) + (output or 0.0)
    return _units(total, given, output)


def _gemini(usage: Mapping[str, Any]) -> Units:
    prompt = _first(usage, "promptTokenCount", "prompt_token_count")
    tools = _first(usage, "toolUsePromptTokenCount", "tool_use_prompt_token_count")
    answer = _first(usage, "candidatesTokenCount", "candidates_token_count")
    thoughts = _first(usage, "thoughtsTokenCount", "thoughts_token_count")
    total = _first(usage, "totalTokenCount", "total_token_count")
    given = None if prompt is None and tools is None else (prompt or 0.0) + (tools or 0.0)
    output = None if answer is None and thoughts is None else (answer or 0.0) + (thoughts or 0.0)
    if total is None and (given is not None or output is not None):
        total = (given or 0.0) + (output or 0.0)
    return _units(total, given, output)


def _units(total: float | None, given: float | None, output: float | None) -> Units:
    named = {"tokens": total, "input_tokens": given, "output_tokens": output}
    return {unit: amount for unit, amount in named.items() if amount is not None}


def _first(usage: Mapping[str, Any], *names: str) -> float | None:
    return next((found for name in names if (found := number(usage.get(name))) is not None), None)
