"""The dialects of the simulated providers.

A dialect parses a request into a `SimulatorCall`, and renders a decision as the status, headers and body
of the real provider."""

from __future__ import annotations

from tidemill.testing.simulator.dialects.anthropic import AnthropicDialect
from tidemill.testing.simulator.dialects.base import Dialect, ReplyContext
from tidemill.testing.simulator.dialects.gemini import GeminiDialect
from tidemill.testing.simulator.dialects.glm import GlmDialect
from tidemill.testing.simulator.dialects.openai import OpenAIDialect

DIALECTS: dict[str, type[Dialect]] = {
    "openai": OpenAIDialect,
    "anthropic": AnthropicDialect,
    "gemini": GeminiDialect,
    "glm": GlmDialect,
}

__all__ = [
    "DIALECTS",
    "AnthropicDialect",
    "Dialect",
    "GeminiDialect",
    "GlmDialect",
    "OpenAIDialect",
    "ReplyContext",
]
