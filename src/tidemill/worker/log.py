"""The worker's voice. structlog is imported when something is said for the first time."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def logger() -> Any:
    import structlog

    return structlog.get_logger("tidemill.worker")
