"""Where log lines go when the program that uses Tidemill has not decided: to stderr.

structlog's own default is stdout, which belongs to the program and its handlers.
"""

from __future__ import annotations

import sys
from typing import Any


def use_stderr_unless_configured() -> None:
    import structlog

    if not structlog.is_configured():
        use_stderr()


def use_stderr(*, json: bool | None = None) -> None:
    """One JSON object per line, or lines for people; by default whichever suits stderr."""
    import structlog

    as_json = not sys.stderr.isatty() if json is None else json
    steps: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
    ]
    if as_json:
        steps += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # The renderer's own tracebacks show local variables, and those may hold secrets.
        steps += [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    # Asked at every line: whoever replaces sys.stderr gets the lines from then on.
    structlog.configure(processors=steps, logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
