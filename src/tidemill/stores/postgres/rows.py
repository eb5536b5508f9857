"""Converts table rows to values and back, and builds column arrays for statements about many rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from asyncpg import Record

from tidemill.core.batching import BatchPolicy
from tidemill.core.checkpoints import Checkpoint
from tidemill.core.jobs import Error, FlowPosition, Job
from tidemill.core.needs import Need
from tidemill.core.states import State
from tidemill.engine.records import KnownWorker

T = TypeVar("T")


def collapse_equal(column: list[T]) -> list[T]:
    """Returns only the first value if all values of the column are equal, else the whole column. The SQL
    statement repeats the first value for the missing rows."""
    return column[:1] if column.count(column[0]) == len(column) else column


def omit_empty(column: list[T | None]) -> list[T | None]:
    """Returns an empty list if all values are None, else the whole column. `unnest` fills the missing rows
    with NULL."""
    return [] if column.count(None) == len(column) else column


def text_array(column: Iterable[object]) -> list[str | None]:
    """Returns the values as text, for an array parameter; the SQL statement casts them back. For arrays of
    other types asyncpg sends a slow query on every new connection."""
    return [None if value is None else str(value) for value in column]


FIELDS = Job.__struct_fields__
COLUMNS = ", ".join((*FIELDS, "in_flow"))

_ERROR = msgspec.json.Decoder(Error)
_BATCHING = msgspec.json.Decoder(BatchPolicy)
_NEEDS = msgspec.json.Decoder(tuple[Need, ...])
_IN_FLOW = msgspec.json.Decoder(FlowPosition)
_TAGS = msgspec.json.Decoder(tuple[str, ...])


def job_of(row: Record) -> Job:
    values = dict(row.items())
    values["payload"] = values["payload"].encode()
    values["state"] = State(values["state"])
    values["tags"] = _TAGS.decode(values["tags"]) if values["tags"] else ()
    values["result"] = None if values["result"] is None else values["result"].encode()
    values["error"] = None if values["error"] is None else _ERROR.decode(values["error"])
    values["needs"] = needs_of(values["needs"])
    values["batching"] = batching_of(values["batching"])
    values["deferred_needs"] = needs_of(values["deferred_needs"])
    values["flow"] = in_flow_of(values.pop("in_flow"))
    return Job(**values)


def needs_of(text: str | None) -> tuple[Need, ...]:
    return _NEEDS.decode(text) if text else ()


def batching_of(text: str | None) -> BatchPolicy | None:
    return _BATCHING.decode(text) if text else None


def in_flow_of(text: str | None) -> FlowPosition | None:
    return _IN_FLOW.decode(text) if text else None


def row_of(job: Job) -> dict[str, Any]:
    row = {field: getattr(job, field) for field in FIELDS}
    row["payload"] = job.payload.decode()
    row["tags"] = json_text(job.tags) if job.tags else None
    row["result"] = None if job.result is None else job.result.decode()
    row["error"] = None if job.error is None else json_text(job.error)
    row["needs"] = json_text(job.needs) if job.needs else None
    row["batching"] = None if job.batching is None else json_text(job.batching)
    row["deferred_needs"] = json_text(job.deferred_needs) if job.deferred_needs else None
    if job.flow is not None:
        row |= {"flow": job.flow.id, "in_flow": json_text(job.flow)}
    return row


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def json_number(value: float | None) -> float | str | None:
    """Returns a number that JSON can express: infinity becomes the text "Infinity". All other values stay
    unchanged."""
    return "Infinity" if value is not None and math.isinf(value) else value


def checkpoint_row(job: str, known: Checkpoint) -> dict[str, Any]:
    return {
        "job": job,
        "name": known.step.name,
        "arguments": known.step.arguments,
        "paid": known.paid,
        "begun": known.begun,
        "fence": known.by.fence,
        "claim": known.by.claim,
        "try": known.by.number,
        "kept": known.kept,
        "result": None if known.result is None else known.result.decode(),
        "unknown": known.unknown,
    }


def worker_row(known: KnownWorker) -> dict[str, Any]:
    info = known.info
    return {
        "id": info.id,
        "number": known.number,
        "lease": known.lease,
        "seen": info.seen,
        "host": info.host,
        "pid": info.pid,
        "queues": json_text(info.queues),
        "concurrency": info.concurrency,
    }
