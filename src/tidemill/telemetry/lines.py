"""An event as a log line."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from tidemill.telemetry.base import Event, Level


class LineWriter:
    """A listener. structlog is imported when something is said for the first time."""

    def __init__(self) -> None:
        self._said: set[type[Event]] = set()

    def __call__(self, event: Event) -> None:
        kind = type(event)
        fields = {name: _shown(value) for name, value in msgspec.structs.asdict(event).items()}
        fields = {name: value for name, value in fields.items() if value is not None}
        if "traceback" in fields:
            fields["exception"] = fields.pop("traceback")  # where structlog's renderers look for it
        getattr(_logger(), self._level(kind))(kind.sentence, **fields)

    def _level(self, kind: type[Event]) -> Level:
        if kind.floods:
            if kind in self._said:
                return "debug"
            self._said.add(kind)
        return kind.level


def _shown(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


@cache
def _logger() -> Any:
    import structlog

    return structlog.get_logger("tidemill")
