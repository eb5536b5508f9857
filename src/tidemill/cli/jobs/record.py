"""One job as text for people: its record, its failed attempts, its log lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tidemill.cli.output import moment
from tidemill.contract.reader import AttemptRecord, LogLine
from tidemill.core.batching import Batching
from tidemill.core.flow_jobs import InFlow
from tidemill.core.job import Error, Job
from tidemill.core.needs import Need
from tidemill.core.states import State
from tidemill.core.terminal_text import one_line
from tidemill.core.transitions import POISON
from tidemill.inspect.words import duration, quantity


def as_data(job: Job) -> dict[str, Any]:
    """The record with payload and result as the JSON they are, and `attempt`, the one it is in. What only
    the store and its workers need is left out."""
    fields = (field for field in job.__struct_fields__ if field not in _INTERNAL)
    data: dict[str, Any] = {field: getattr(job, field) for field in fields}
    data["key"] = job.key or None
    data["attempt"] = attempt_of(job) if job.state is State.RUNNING else None
    data["payload"] = _as_json(job.payload)
    data["result"] = None if job.result is None else _as_json(job.result)
    return data


def _as_json(stored: bytes) -> msgspec.Raw:
    """As it is stored; what a foreign producer sent and was refused for may be no JSON, and is text then."""
    try:
        msgspec.json.decode(stored)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.Raw(msgspec.json.encode(stored.decode(errors="replace")))
    return msgspec.Raw(stored)


def attempt_of(job: Job) -> int:
    """An attempt is charged when it ends: a running job is in the one after those. So is one that crashed
    until it was given up: crashes are counted apart."""
    return job.attempts + (job.state is State.RUNNING or job.reason == POISON)


def remark(job: Job) -> str:
    """Why a job is as it is. What an attempt died of is not why it was cancelled."""
    error = None if job.error is None else _sentence(job.error)
    if job.state is State.CANCELLED:
        error = None
    reason = None if job.reason == "failed" else job.reason
    return ": ".join(filter(None, (reason, error))) or job.note or ""


def lines_about(
    record: dict[str, Any], attempts: Sequence[AttemptRecord], log: Sequence[LogLine]
) -> Iterator[str]:
    for field, value in record.items():
        if value not in _NOTHING.get(field, (None, "", ())):
            yield f"{field + ':':<17} {one_line(_shown(field, value))}"
    yield from _tracebacks(record["error"], attempts)
    if log:
        yield "log:"
    for line in log:
        yield one_line(f"  {moment(line.at)} #{line.attempt} {line.line}")


def _tracebacks(last: Error | None, attempts: Sequence[AttemptRecord]) -> Iterator[str]:
    """Each once: a job's error is that of its last attempt, and most retries fail alike."""
    seen: set[str] = set()
    if attempts:
        yield "failed_attempts:"
    for attempt in attempts:
        by = f" by {attempt.worker}" if attempt.worker else ""
        cause = f": {_sentence(attempt.error)}" if attempt.error else ""
        yield one_line(f"  #{attempt.attempt} {attempt.outcome} {moment(attempt.ended)}{by}{cause}")
        yield from _traceback(attempt.error, seen)
    yield from _traceback(last, seen)


def _traceback(error: Error | None, seen: set[str]) -> Iterator[str]:
    if error is None or not error.traceback or error.traceback in seen:
        return
    seen.add(error.traceback)
    for line in error.traceback.splitlines():
        yield one_line(f"    {line}")


def _shown(field: str, value: Any) -> str:
    if field in _TIMES:
        return moment(value)
    if isinstance(value, Error):
        return _sentence(value)
    if field == "tags":
        return ", ".join(value)
    if field in _NEEDS:
        return "; ".join(map(_needed, value))
    if isinstance(value, Batching):
        return f"{value.max_items} jobs in a call at most, waits {duration(value.linger)} for company"
    if isinstance(value, InFlow):
        return f"step {value.step!r} of {value.id}, job {value.index}"
    return bytes(value).decode() if isinstance(value, msgspec.Raw) else str(value)


def _needed(need: Need) -> str:
    """`gemini: 1500 tokens`; of one that says no amounts, the pool alone."""
    units = ", ".join(quantity(amount, unit) for unit, amount in need.units.items())
    return f"{need.name}: {units}" if units else need.name


def _sentence(error: Error) -> str:
    return f"{error.type}: {error.message}"


_NEEDS = frozenset({"needs", "extra"})

_TIMES = frozenset({"created", "due", "expires", "started", "finished", "unique_until"})

_INTERNAL = frozenset(
    {"seq", "lane", "fence", "claim", "number", "lease", "alone", "part", "call", "unique_holds"}
)

_NOTHING = {"unknown_for": (0,)}
"""Values that say nothing, where they are not the usual ones."""
