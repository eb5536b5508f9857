"""How the providers speak. Each dialect turns a request into what was asked, and a verdict into the status,
headers and body the real one would send."""

from __future__ import annotations

from tidemill.testing.providers.dialects.anthropic import Anthropic
from tidemill.testing.providers.dialects.dialect import Dialect, Told
from tidemill.testing.providers.dialects.gemini import Gemini
from tidemill.testing.providers.dialects.glm import GLM
from tidemill.testing.providers.dialects.openai import OpenAI

DIALECTS: dict[str, type[Dialect]] = {
    "openai": OpenAI,
    "anthropic": Anthropic,
    "gemini": Gemini,
    "glm": GLM,
}

__all__ = ["DIALECTS", "GLM", "Anthropic", "Dialect", "Gemini", "OpenAI", "Told"]
