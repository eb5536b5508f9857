"""Converts rows of the table `jobs` to `Job` objects and back."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemill.core.batching import BatchPolicy
from tidemill.core.jobs import Error, FlowPosition, Job
from tidemill.core.needs import Need
from tidemill.core.states import State

FIELDS = Job.__struct_fields__

_ERROR = msgspec.json.Decoder(Error)
_BATCHING = msgspec.json.Decoder(BatchPolicy)
_FLOW = msgspec.json.Decoder(FlowPosition)
_NEEDS = msgspec.json.Decoder(tuple[Need, ...])
_TAGS = msgspec.json.Decoder(tuple[str, ...])
_PAYLOAD, _STATE, _TAGS_AT = FIELDS.index("payload"), FIELDS.index("state"), FIELDS.index("tags")
_RESULT, _ERROR_AT, _NEEDS_AT = FIELDS.index("result"), FIELDS.index("error"), FIELDS.index("needs")
_BATCHING_AT, _FLOW_AT = FIELDS.index("batching"), FIELDS.index("flow")
_DEFERRED_AT = FIELDS.index("deferred_needs")
_FLAGS = (FIELDS.index("unique_holds"), FIELDS.index("alone"))


def job_of(row: tuple[Any, ...]) -> Job:
    values = list(row)
    values[_PAYLOAD] = values[_PAYLOAD].encode()
    values[_STATE] = State(values[_STATE])
    values[_TAGS_AT] = _TAGS.decode(values[_TAGS_AT]) if values[_TAGS_AT] else ()
    values[_RESULT] = None if values[_RESULT] is None else values[_RESULT].encode()
    values[_ERROR_AT] = None if values[_ERROR_AT] is None else _ERROR.decode(values[_ERROR_AT])
    values[_NEEDS_AT] = _NEEDS.decode(values[_NEEDS_AT]) if values[_NEEDS_AT] else ()
    values[_BATCHING_AT] = _BATCHING.decode(values[_BATCHING_AT]) if values[_BATCHING_AT] else None
    values[_DEFERRED_AT] = _NEEDS.decode(values[_DEFERRED_AT]) if values[_DEFERRED_AT] else ()
    values[_FLOW_AT] = None if values[_FLOW_AT] is None else _FLOW.decode(values[_FLOW_AT])
    for flag in _FLAGS:
        values[flag] = bool(values[flag])
    return Job(**dict(zip(FIELDS, values, strict=True)))


def row_of(job: Job) -> dict[str, Any]:
    row = {field: getattr(job, field) for field in FIELDS}
    row["payload"] = job.payload.decode()
    row["state"] = job.state.value
    row["tags"] = text_of(job.tags) if job.tags else None
    row["result"] = None if job.result is None else job.result.decode()
    row["error"] = None if job.error is None else text_of(job.error)
    row["needs"] = text_of(job.needs) if job.needs else None
    row["batching"] = None if job.batching is None else text_of(job.batching)
    row["deferred_needs"] = text_of(job.deferred_needs) if job.deferred_needs else None
    row["flow"] = None if job.flow is None else text_of(job.flow)
    return row


def text_of(value: object) -> str:
    return msgspec.json.encode(value).decode()
