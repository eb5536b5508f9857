"""Logging to stderr, for programs that have not configured structlog.

If a program has configured structlog or `logging` itself, Tidemill does not change that."""

from __future__ import annotations

import json
import sys
from collections.abc import MutableMapping
from textwrap import indent
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from tidemill.clock import SystemClock
from tidemill.core.redaction import (
    SecretNames,
    escape_json_controls,
    escape_newlines,
    redact_text,
    strip_controls,
)
from tidemill.errors import ConfigurationError
from tidemill.telemetry.current_attempt import add_current_attempt
from tidemill.telemetry.event_base import LEVEL_RANKS
from tidemill.telemetry.listeners import EventLogger, Signals

if TYPE_CHECKING:
    import logging


LogFormat = Literal["auto", "json", "console"]


class LogSettings(NamedTuple):
    """The format of log lines, and the lowest level that is written."""

    format: LogFormat = "auto"
    level: str = "info"


class _LogState:
    """The log settings of this process, and the processors and the handler that Tidemill installed."""

    settings: LogSettings | None = None
    steps: list[Any] | None = None
    handler: logging.Handler | None = None


_state = _LogState()
_SECRET_NAMES = SecretNames()
_MULTILINE_FIELDS = frozenset({"exception", "stack"})
_write_line = EventLogger(SystemClock().boot)


def configure(*, format: LogFormat = "auto", level: str = "info") -> None:  # noqa: A002 - the word for it
    """Sends log lines of Tidemill, structlog and `logging` to stderr, if they have at least the given
    `level`. `level="debug"` also shows every start and end of a job.

    `format="json"` writes each line as a JSON object, and `format="console"` as text for people.
    `format="auto"` chooses text if stderr is a terminal."""
    _state.settings = settings = _check_settings(LogSettings(format, level))
    _configure_structlog(settings)
    _configure_logging(settings)


def use_stderr_unless_configured() -> None:
    """Makes structlog write to stderr, unless the program has configured structlog. The program's `logging`
    does not change."""
    import structlog

    if not structlog.is_configured():
        _configure_structlog(_state.settings or LogSettings())


def current_settings() -> LogSettings | None:
    """Returns the settings given to `configure`; None if it was not called. A child process uses them to log
    in the same way."""
    return _state.settings


def write_events(signals: Signals) -> None:
    """Subscribes to `signals` and writes each event as a log line. Events below the configured level cost
    nothing."""
    signals.subscribe(_write, level=(_state.settings or LogSettings()).level)


def _write(event: Any) -> None:
    use_stderr_unless_configured()
    _write_line(event)


def _check_settings(settings: LogSettings) -> LogSettings:
    if settings.format not in ("auto", "json", "console"):
        raise ConfigurationError(f"log format: is {settings.format!r}; give auto, json or console")
    level = settings.level.lower()
    if level not in LEVEL_RANKS:
        raise ConfigurationError(f"log level: is {settings.level!r}; give one of {', '.join(LEVEL_RANKS)}")
    return settings._replace(level=level)


def _configure_structlog(settings: LogSettings) -> None:
    import structlog

    if structlog.is_configured() and structlog.get_config()["processors"] is not _state.steps:
        return
    _state.steps = [
        structlog.contextvars.merge_contextvars,
        *_common_processors(),
        *_rendering_processors(settings.format),
    ]
    structlog.configure(
        processors=_state.steps,
        wrapper_class=structlog.make_filtering_bound_logger(LEVEL_RANKS[settings.level]),
        # Evaluated for every line: a program that replaces sys.stderr gets the lines from then on. A line
        # and its end are one write, or lines of several processes would mix.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
    )


def _configure_logging(settings: LogSettings) -> None:
    import logging

    import structlog

    root = logging.getLogger()
    if _state.handler is not None:
        root.removeHandler(_state.handler)
    if root.handlers:
        return
    _state.handler = handler = _stderr_handler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_common_processors(), structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering_processors(settings.format),
            ],
        )
    )
    root.addHandler(handler)
    root.setLevel(LEVEL_RANKS[settings.level])


def _common_processors() -> list[Any]:
    import structlog

    return [
        add_current_attempt,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
    ]


def _rendering_processors(chosen: LogFormat) -> list[Any]:
    import structlog

    terminal = sys.stderr.isatty()
    if chosen == "json" or (chosen == "auto" and not terminal):
        return [
            structlog.processors.format_exc_info,
            _without_secrets,
            structlog.processors.JSONRenderer(serializer=_as_json, ensure_ascii=False),
        ]
    # The renderer's default tracebacks show local variables, which may hold secrets.
    plain = structlog.dev.plain_traceback
    return [
        structlog.processors.format_exc_info,
        _without_doubled_trace,
        _without_secrets,
        _without_controls,
        structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=plain),
    ]


def _without_secrets(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Hides everything in the log line that looks like a secret. The worker has already redacted the texts of
    its jobs."""
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = redact_text(value, _SECRET_NAMES)
    return line


def _without_controls(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escapes control characters in the log line. No value can then control the terminal or imitate another
    log line."""
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = (
                indent(strip_controls(value), "  ") if name in _MULTILINE_FIELDS else escape_newlines(value)
            )
    return line


def _as_json(line: Any, **options: Any) -> str:
    return escape_json_controls(json.dumps(line, **options))


def _without_doubled_trace(
    _logger: Any, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Removes the trace from the log line if it equals the job id, because the line already shows the job
    id."""
    if "trace" in line and line["trace"] == line.get("job"):
        del line["trace"]
    return line


def _stderr_handler() -> logging.StreamHandler[TextIO]:
    import logging

    class ToStderr(logging.StreamHandler[TextIO]):
        """A `logging` handler that always writes to the current `sys.stderr`, even if the program has
        replaced it."""

        def emit(self, record: logging.LogRecord) -> None:
            self.stream = sys.stderr
            super().emit(record)

    return ToStderr()
