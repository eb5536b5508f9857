"""Formats one job as text or JSON: fields, attempts, log lines and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tidemill.cli.output import format_size, format_time
from tidemill.contract.reader import AttemptRecord, LogLine
from tidemill.core.batching import BatchPolicy
from tidemill.core.jobs import Error, FlowPosition, Job
from tidemill.core.needs import Need
from tidemill.core.redaction import escape_newlines
from tidemill.core.states import State
from tidemill.core.transitions import POISON
from tidemill.inspect.formatting import format_duration, format_quantity
from tidemill.inspect.views import CheckpointView


def job_data(job: Job) -> dict[str, Any]:
    """Returns the job's fields for JSON output. `attempt` is the number of the running attempt, None if the
    job is not running."""
    fields = (field for field in job.__struct_fields__ if field not in _INTERNAL_FIELDS)
    data: dict[str, Any] = {field: getattr(job, field) for field in fields}
    data["key"] = job.key or None
    data["attempt"] = current_attempt(job) if job.state is State.RUNNING else None
    data["payload"] = _raw_json(job.payload)
    data["result"] = None if job.result is None else _raw_json(job.result)
    return data


def _raw_json(stored: bytes) -> msgspec.Raw:
    """Returns the stored bytes as JSON, unchanged. Bytes that are not JSON become a JSON string."""
    try:
        msgspec.json.decode(stored)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.Raw(msgspec.json.encode(stored.decode(errors="replace")))
    return msgspec.Raw(stored)


def current_attempt(job: Job) -> int:
    """Returns the number of the current attempt, or of the last attempt if the job is not running."""
    # `attempts` counts neither the running attempt nor the crash that made a job poison.
    return job.attempts + (job.state is State.RUNNING or job.reason == POISON)


def job_note(job: Job) -> str:
    """Returns a text that says why the job is in its state: reason and error, else the handler's note."""
    error = None if job.error is None else _format_error(job.error)
    if job.state is State.CANCELLED:
        error = None
    reason = None if job.reason == "failed" else job.reason
    return ": ".join(filter(None, (reason, error))) or job.note or ""


def job_lines(
    record: dict[str, Any], attempts: Sequence[AttemptRecord], log: Sequence[LogLine]
) -> Iterator[str]:
    for field, value in record.items():
        if value not in _EMPTY_VALUES.get(field, (None, "", ())):
            yield f"{field + ':':<17} {escape_newlines(_format_field(field, value))}"
    yield from _attempt_lines(record["error"], attempts)
    if log:
        yield "log:"
    for line in log:
        yield escape_newlines(f"  {format_time(line.at)} #{line.attempt} {line.line}")


def _attempt_lines(last: Error | None, attempts: Sequence[AttemptRecord]) -> Iterator[str]:
    """Yields the text lines of the failed attempts. Each traceback is printed once. `last` is the job's last
    error."""
    seen: set[str] = set()
    if attempts:
        yield "failed_attempts:"
    for attempt in attempts:
        by = f" by {attempt.worker}" if attempt.worker else ""
        cause = f": {_format_error(attempt.error)}" if attempt.error else ""
        yield escape_newlines(
            f"  #{attempt.attempt} {attempt.outcome} {format_time(attempt.ended)}{by}{cause}"
        )
        yield from _traceback_lines(attempt.error, seen)
    yield from _traceback_lines(last, seen)


def _traceback_lines(error: Error | None, seen: set[str]) -> Iterator[str]:
    if error is None or not error.traceback or error.traceback in seen:
        return
    seen.add(error.traceback)
    for line in error.traceback.splitlines():
        yield escape_newlines(f"    {line}")


def _format_field(field: str, value: Any) -> str:
    if field in _TIME_FIELDS:
        return format_time(value)
    if isinstance(value, Error):
        return _format_error(value)
    if field == "tags":
        return ", ".join(value)
    if field in _NEED_FIELDS:
        return "; ".join(map(_format_need, value))
    if isinstance(value, BatchPolicy):
        return f"{value.max_items} jobs in a call at most, waits {format_duration(value.linger)} for company"
    if isinstance(value, FlowPosition):
        return f"step {value.step!r} of {value.id}, job {value.index}"
    return bytes(value).decode() if isinstance(value, msgspec.Raw) else str(value)


def _format_need(need: Need) -> str:
    """Returns the units that a job reserves in one pool as text, such as `gemini: 1500 tokens`."""
    units = ", ".join(format_quantity(amount, unit) for unit, amount in need.units.items())
    return f"{need.name}: {units}" if units else need.name


def _format_error(error: Error) -> str:
    return f"{error.type}: {error.message}"


_NEED_FIELDS = frozenset({"needs", "deferred_needs"})

_TIME_FIELDS = frozenset({"created", "due", "expires", "started", "finished", "unique_until"})

_INTERNAL_FIELDS = frozenset(
    {"seq", "lane", "fence", "claim", "number", "lease", "alone", "part", "call", "unique_holds"}
)

_EMPTY_VALUES = {"unknown_for": (0,)}
"""Further values that count as empty, by field."""


def checkpoint_data(steps: Sequence[CheckpointView]) -> list[dict[str, Any]]:
    """Returns the checkpoints as JSON data without their results, which may be long. `app.inspect.job(id)`
    returns the results."""
    return [
        {name: value for name, value in msgspec.structs.asdict(step).items() if name != "result"}
        for step in steps
    ]


def checkpoint_lines(steps: Sequence[CheckpointView]) -> Iterator[str]:
    if steps:
        yield "checkpoints:"
    for step in steps:
        paid = " paid" if step.paid else ""
        size = "" if step.size is None else f", {format_size(step.size)}"
        unknown = f", called again without knowing: {step.unknown}" if step.unknown else ""
        when = format_time(step.kept if step.kept is not None else step.begun)
        yield escape_newlines(
            f"  {step.name} ({step.arguments[:8]}){paid} {step.state} {when}{size}{unknown}"
        )
