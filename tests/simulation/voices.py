"""Listens to what the code under test logs: a broken service is a bug even when nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog


@contextmanager
def listening(on_exception: Callable[[str], None]) -> Iterator[None]:
    """Nothing is printed; whatever was logged with a traceback is reported."""

    def hear(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if event.get("exc_info"):
            on_exception(structlog.processors.format_exc_info(_logger, _method, dict(event))["exception"])
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[hear], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)
