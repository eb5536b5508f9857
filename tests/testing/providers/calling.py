"""Requests as the clients of each provider send them, and a provider in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.testing import VirtualClock
from tidemill.testing.providers import (
    DIALECTS,
    Answer,
    CalledProvider,
    Dialect,
    Options,
    Quota,
    Request,
)

GEMINI = "/v1beta/models/gemini-2.5-flash"


def chat(dialect: str, text: str = "How high is the tide?", mark: str = "job-1", **headers: str) -> Request:
    message = [{"role": "user", "content": text}]
    sent = {"x-job": mark} | {name.replace("_", "-"): value for name, value in headers.items()}
    match dialect:
        case "openai":
            return Request("/v1/chat/completions", {"model": "gpt-4o", "messages": message}, sent)
        case "anthropic":
            body = {"model": "claude-sonnet-4-5", "max_tokens": 1024, "messages": message}
            return Request("/v1/messages", body, sent)
        case "gemini":
            return Request(f"{GEMINI}:generateContent", {"contents": [{"parts": [{"text": text}]}]}, sent)
        case _:
            body = {"model": "glm-4.6", "messages": message}
            return Request("/api/paas/v4/chat/completions", body, sent)


def provider(
    dialect: str | Dialect, quotas: Sequence[Quota], *, seed: int = 0, scale: float = 1.0, **options: Any
) -> CalledProvider:
    """To be made inside a virtual loop, whose clock it gets."""
    spoken = DIALECTS[dialect]() if isinstance(dialect, str) else dialect
    return CalledProvider(spoken, quotas, Options(**options), clock=VirtualClock(), seed=seed, scale=scale)


async def last(used: CalledProvider, request: Request, calls: int) -> Answer:
    """The answer to the last of so many calls, one after the other."""
    for _ in range(calls - 1):
        await used.call(request)
    return await used.call(request)
