"""Rows of tables and what they stand for."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from asyncpg import Record

from tidemill.core.batching import Batching
from tidemill.core.checkpoints import Checkpoint
from tidemill.core.flow_jobs import InFlow
from tidemill.core.job import Error, Job
from tidemill.core.needs import Need
from tidemill.core.states import State
from tidemill.engine.records import KnownWorker

FIELDS = Job.__struct_fields__
COLUMNS = ", ".join((*FIELDS, "in_flow"))

_ERROR = msgspec.json.Decoder(Error)
_BATCHING = msgspec.json.Decoder(Batching)
_NEEDS = msgspec.json.Decoder(tuple[Need, ...])
_IN_FLOW = msgspec.json.Decoder(InFlow)
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
    values["flow"] = in_flow_of(values.pop("in_flow"))
    return Job(**values)


def needs_of(text: str | None) -> tuple[Need, ...]:
    return _NEEDS.decode(text) if text else ()


def batching_of(text: str | None) -> Batching | None:
    return _BATCHING.decode(text) if text else None


def in_flow_of(text: str | None) -> InFlow | None:
    return _IN_FLOW.decode(text) if text else None


def row_of(job: Job) -> dict[str, Any]:
    row = {field: getattr(job, field) for field in FIELDS}
    row["payload"] = job.payload.decode()
    row["tags"] = text_of(job.tags) if job.tags else None
    row["result"] = None if job.result is None else job.result.decode()
    row["error"] = None if job.error is None else text_of(job.error)
    row["needs"] = text_of(job.needs) if job.needs else None
    row["batching"] = None if job.batching is None else text_of(job.batching)
    row["extra"] = text_of(job.extra) if job.extra else None
    if job.flow is not None:
        row |= {"flow": job.flow.id, "in_flow": text_of(job.flow)}
    return row


def text_of(value: object) -> str:
    return msgspec.json.encode(value).decode()


def number(value: float | None) -> float | str | None:
    """As JSON for a column of numbers: JSON has no word for what has no end."""
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
        "queues": text_of(info.queues),
        "concurrency": info.concurrency,
    }
