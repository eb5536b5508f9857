"""A row of `jobs` and a `Job`, both ways."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from asyncpg import Record

from tidemill.core.batching import Batching
from tidemill.core.job import Error, Job
from tidemill.core.needs import Need
from tidemill.core.states import State

FIELDS = Job.__struct_fields__
COLUMNS = ", ".join(FIELDS)

_ERROR = msgspec.json.Decoder(Error)
_BATCHING = msgspec.json.Decoder(Batching)
_NEEDS = msgspec.json.Decoder(tuple[Need, ...])
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
    values["extra"] = needs_of(values["extra"])
    return Job(**values)


def needs_of(text: str | None) -> tuple[Need, ...]:
    return _NEEDS.decode(text) if text else ()


def batching_of(text: str | None) -> Batching | None:
    return _BATCHING.decode(text) if text else None


def row_of(job: Job) -> dict[str, Any]:
    row = {field: getattr(job, field) for field in FIELDS}
    row["payload"] = job.payload.decode()
    row["tags"] = text_of(job.tags) if job.tags else None
    row["result"] = None if job.result is None else job.result.decode()
    row["error"] = None if job.error is None else text_of(job.error)
    row["needs"] = text_of(job.needs) if job.needs else None
    row["batching"] = None if job.batching is None else text_of(job.batching)
    row["extra"] = text_of(job.extra) if job.extra else None
    return row


def text_of(value: object) -> str:
    return msgspec.json.encode(value).decode()


def number(value: float | None) -> float | str | None:
    """As JSON for a column of numbers: JSON has no word for what has no end."""
    return "Infinity" if value is not None and math.isinf(value) else value
