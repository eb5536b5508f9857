"""An event as a log line."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from tidemill.telemetry.base import Event, Level

FLOOD = 60.0


class LineWriter:
    """A listener; `now` is any clock that only goes forward. structlog is imported when something is said
    for the first time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._said: dict[type[Event], float] = {}

    def __call__(self, event: Event) -> None:
        kind = type(event)
        fields = {name: _shown(value) for name, value in msgspec.structs.asdict(event).items()}
        fields = {name: value for name, value in fields.items() if value is not None}
        if "traceback" in fields:
            fields["exception"] = fields.pop("traceback")  # where structlog's renderers look for it
        getattr(_logger(), self._level(kind))(kind.sentence, **fields)

    def _level(self, kind: type[Event]) -> Level:
        if kind.floods:
            now = self._now()
            if now - self._said.get(kind, -math.inf) < FLOOD:
                return "debug"
            self._said[kind] = now
        return kind.level


def _shown(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


@cache
def _logger() -> Any:
    import structlog

    return structlog.get_logger("tidemill")
