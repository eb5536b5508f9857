"""What a queue is declared with: code first, then the environment, then the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.core.names import problem_with_name
from tidemill.core.queues import QueueSettings
from tidemill.errors import ConfigurationError
from tidemill.settings.settings import Settings


def declared(settings: Settings, name: str, code: Mapping[str, Any] | None = None) -> QueueSettings:
    """`code` is what the application says; refused, naming the field, when it cannot work."""
    if problem := problem_with_name("queue", name):
        raise ConfigurationError(problem)
    merged = QueueSettings(**settings.queue(name) | dict(code or {}))
    if problem := merged.problem():
        raise ConfigurationError(f"queue {name!r}: {problem}")
    settings.add_arguments({f"queues.{name}.{key}": value for key, value in (code or {}).items()})
    return merged
