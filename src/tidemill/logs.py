"""Where log lines go when the program that uses Tidemill has not decided: to stderr.

structlog's own default is stdout, which belongs to the program and its handlers. A program that
configured structlog or `logging` itself is left alone; `tidemill.telemetry.current` has what adds
job, task, attempt and trace to its lines.
"""

from __future__ import annotations

import json
import sys
from collections.abc import MutableMapping
from textwrap import indent
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from tidemill.clock import SystemClock
from tidemill.core.secrecy import Names, redacted_text
from tidemill.core.terminal_text import one_line, printable, printable_json
from tidemill.errors import ConfigurationError
from tidemill.telemetry.base import RANKS
from tidemill.telemetry.current import add_current
from tidemill.telemetry.lines import LineWriter
from tidemill.telemetry.signals import Signals

if TYPE_CHECKING:
    import logging

Format = Literal["auto", "json", "console"]


class LogSettings(NamedTuple):
    format: Format = "auto"
    level: str = "info"


class _Configured:
    """What was asked for in this process, and what was set up, to be told from what the program did."""

    settings: LogSettings | None = None
    steps: list[Any] | None = None
    handler: logging.Handler | None = None


_ours = _Configured()
_NAMES = Names()
_OF_LINES = frozenset({"exception", "stack"})
_write_line = LineWriter(SystemClock().boot)


def configure(*, format: Format = "auto", level: str = "info") -> None:  # noqa: A002 - the word for it
    """Lines of Tidemill, of structlog and of `logging` to stderr, from `level` on: one JSON object per
    line, or lines for people; `auto` takes whichever suits stderr. `debug` shows every start and end
    of a job."""
    _ours.settings = settings = _checked(LogSettings(format, level))
    _configure_structlog(settings)
    _configure_logging(settings)


def use_stderr_unless_configured() -> None:
    """Structlog alone: a program's `logging` is its own business."""
    import structlog

    if not structlog.is_configured():
        _configure_structlog(_ours.settings or LogSettings())


def in_force() -> LogSettings | None:
    """What `configure` was told, for a process that should log alike."""
    return _ours.settings


def write_events(signals: Signals) -> None:
    """Let events become log lines; those below the level in force stay free of cost."""
    signals.subscribe(_write, level=(_ours.settings or LogSettings()).level)


def _write(event: Any) -> None:
    use_stderr_unless_configured()
    _write_line(event)


def _checked(settings: LogSettings) -> LogSettings:
    if settings.format not in ("auto", "json", "console"):
        raise ConfigurationError(f"log format: is {settings.format!r}; give auto, json or console")
    level = settings.level.lower()
    if level not in RANKS:
        raise ConfigurationError(f"log level: is {settings.level!r}; give one of {', '.join(RANKS)}")
    return settings._replace(level=level)


def _configure_structlog(settings: LogSettings) -> None:
    import structlog

    if structlog.is_configured() and structlog.get_config()["processors"] is not _ours.steps:
        return
    _ours.steps = [structlog.contextvars.merge_contextvars, *_common(), *_rendering(settings.format)]
    structlog.configure(
        processors=_ours.steps,
        wrapper_class=structlog.make_filtering_bound_logger(RANKS[settings.level]),
        # Asked at every line: whoever replaces sys.stderr gets the lines from then on. A line and its
        # end go out in one write, or those of several processes run into each other.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
    )


def _configure_logging(settings: LogSettings) -> None:
    import logging

    import structlog

    root = logging.getLogger()
    if _ours.handler is not None:
        root.removeHandler(_ours.handler)
    if root.handlers:
        return
    _ours.handler = handler = _stderr_handler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_common(), structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(settings.format),
            ],
        )
    )
    root.addHandler(handler)
    root.setLevel(RANKS[settings.level])


def _common() -> list[Any]:
    import structlog

    return [add_current, structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso")]


def _rendering(chosen: Format) -> list[Any]:
    import structlog

    terminal = sys.stderr.isatty()
    if chosen == "json" or (chosen == "auto" and not terminal):
        return [
            structlog.processors.format_exc_info,
            _without_secrets,
            structlog.processors.JSONRenderer(serializer=_as_json, ensure_ascii=False),
        ]
    # The renderer's own tracebacks show local variables, and those may hold secrets.
    plain = structlog.dev.plain_traceback
    return [
        structlog.processors.format_exc_info,
        _without_doubled_trace,
        _without_secrets,
        _without_controls,
        structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=plain),
    ]


def _without_secrets(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Hides everything that looks like a secret. The worker has redacted the texts of its jobs before."""
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = redacted_text(value, _NAMES)
    return line


def _without_controls(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escapes control characters, so that a value cannot drive the terminal or imitate a log line."""
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = indent(printable(value), "  ") if name in _OF_LINES else one_line(value)
    return line


def _as_json(line: Any, **options: Any) -> str:
    return printable_json(json.dumps(line, **options))


def _without_doubled_trace(
    _logger: Any, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A job without a trace of its own has its id for one; a person need not read it twice."""
    if "trace" in line and line["trace"] == line.get("job"):
        del line["trace"]
    return line


def _stderr_handler() -> logging.StreamHandler[TextIO]:
    import logging

    class ToStderr(logging.StreamHandler[TextIO]):
        """Writes to what sys.stderr is at the time, as the other lines do."""

        def emit(self, record: logging.LogRecord) -> None:
            self.stream = sys.stderr
            super().emit(record)

    return ToStderr()
