"""Requests in the format of each provider's clients, and a provider in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.testing import VirtualClock
from tidemill.testing.simulator import (
    DIALECTS,
    CallableProvider,
    Dialect,
    Quota,
    SimulatorOptions,
    SimulatorReply,
    SimulatorRequest,
)

GEMINI = "/v1beta/models/gemini-2.5-flash"


def chat_request(
    dialect: str, text: str = "How high is the tide?", mark: str = "job-1", **headers: str
) -> SimulatorRequest:
    message = [{"role": "user", "content": text}]
    sent = {"x-job": mark} | {name.replace("_", "-"): value for name, value in headers.items()}
    match dialect:
        case "openai":
            return SimulatorRequest("/v1/chat/completions", {"model": "gpt-4o", "messages": message}, sent)
        case "anthropic":
            body = {"model": "claude-sonnet-4-5", "max_tokens": 1024, "messages": message}
            return SimulatorRequest("/v1/messages", body, sent)
        case "gemini":
            return SimulatorRequest(
                f"{GEMINI}:generateContent", {"contents": [{"parts": [{"text": text}]}]}, sent
            )
        case _:
            body = {"model": "glm-4.6", "messages": message}
            return SimulatorRequest("/api/paas/v4/chat/completions", body, sent)


def create_provider(
    dialect: str | Dialect, quotas: Sequence[Quota], *, seed: int = 0, scale: float = 1.0, **options: Any
) -> CallableProvider:
    """Creates a provider inside a virtual loop, with the clock of that loop."""
    spoken = DIALECTS[dialect]() if isinstance(dialect, str) else dialect
    return CallableProvider(
        spoken, quotas, SimulatorOptions(**options), clock=VirtualClock(), seed=seed, scale=scale
    )


async def last_reply(used: CallableProvider, request: SimulatorRequest, calls: int) -> SimulatorReply:
    """Makes `calls` calls one after the other; returns the last reply."""
    for _ in range(calls - 1):
        await used.call(request)
    return await used.call(request)
