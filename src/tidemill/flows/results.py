"""Loads the results of flow steps for the jobs that take them as arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from tidemill.contract.store import Store
from tidemill.core.jobs import (
    COMPENSATION_SUFFIX,
    MAX_STEP_INPUT_BYTES,
    Error,
    FlowPosition,
    Job,
    ResultReference,
    flow_job_id,
)
from tidemill.core.states import State


class StepFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a compensation task: the job that failed.

    - `step`, `index`: identify the failed job in the flow.
    - `arguments`: its arguments, including the results of other steps.
    - `attempts`: how often it ran, including the first run.
    """

    flow: str
    key: str | None
    step: str
    index: int
    task: str
    arguments: dict[str, Any]
    error: Error
    attempts: int


ARGUMENTS_FIELD = "arguments"
"""The field of a StepFailure that receives results when the job runs."""


MAX_RESULTS_PER_READ = 100
"""A result has up to 256 KiB, so a read stays short."""

JSON_NULL = msgspec.Raw(b"null")
JsonMembers = dict[str, msgspec.Raw]


class ResultMissing(Exception):
    """Raised if a result cannot be read because its job was deleted."""


class ResultsTooLarge(Exception):
    """Raised if the results that one job reads have more than MAX_STEP_INPUT_BYTES together."""


async def load_argument_results(store: Store, flow: str, reads: Mapping[str, ResultReference]) -> JsonMembers:
    """Returns the results that a job takes as arguments, as JSON by argument name. `reads` says for each
    argument which step's result it takes. Raises ResultMissing or ResultsTooLarge."""
    found: JsonMembers = {}
    bytes_left = MAX_STEP_INPUT_BYTES
    for argument, read in reads.items():
        values: list[msgspec.Raw] = []
        async for page in _load_pages(
            store, flow, read.step, (0,) if read.count is None else range(read.count)
        ):
            values += page
            bytes_left -= sum(map(len, page))
            if bytes_left < 0:
                raise ResultsTooLarge(
                    f"{argument}: what step {read.step!r} returned is too much: all results a job takes may "
                    f"have {MAX_STEP_INPUT_BYTES} bytes together; store them elsewhere and return where they "
                    "are"
                )
        found[argument] = values[0] if read.count is None else msgspec.Raw(msgspec.json.encode(values))
    return found


async def load_results(store: Store, flow: str, step: str, indexes: Sequence[int]) -> list[msgspec.Raw]:
    """Returns the results of a step's jobs as JSON, in the order of `indexes`. For a failed job it returns
    the result of the compensation, or null. Raises ResultMissing if a deleted job has no compensation."""
    return [value async for page in _load_pages(store, flow, step, indexes) for value in page]


async def fill_payload(store: Store, flow: FlowPosition, payload: bytes) -> bytes:
    """Returns the job's payload with the results of other steps filled in as arguments. For a compensation
    they are filled into the arguments of the failed job (`StepFailure.arguments`)."""
    found = await load_argument_results(store, flow.id, flow.reads)
    members = msgspec.json.decode(payload, type=JsonMembers)
    if not flow.step.endswith(COMPENSATION_SUFFIX):
        return msgspec.json.encode({**members, **found})
    [(name, failure)] = members.items()
    fields = msgspec.json.decode(failure, type=JsonMembers)
    arguments = msgspec.json.decode(fields[ARGUMENTS_FIELD], type=JsonMembers)
    return msgspec.json.encode({name: {**fields, ARGUMENTS_FIELD: {**arguments, **found}}})


async def _load_pages(
    store: Store, flow: str, step: str, indexes: Sequence[int]
) -> AsyncIterator[list[msgspec.Raw]]:
    for start in range(0, len(indexes), MAX_RESULTS_PER_READ):
        page_indexes = indexes[start : start + MAX_RESULTS_PER_READ]
        found = await _load_jobs(store, flow, step, page_indexes)
        failed = [index for index, job in found.items() if job is None or job.state is not State.DONE]
        compensations = await _load_jobs(store, flow, step + COMPENSATION_SUFFIX, failed) if failed else {}
        yield [
            _pick_result(found[index], compensations.get(index), flow_job_id(flow, step, index))
            for index in page_indexes
        ]


async def _load_jobs(store: Store, flow: str, step: str, indexes: Sequence[int]) -> dict[int, Job | None]:
    jobs = await store.get([flow_job_id(flow, step, index) for index in indexes])
    return dict(zip(indexes, jobs, strict=True))


def _pick_result(job: Job | None, compensation: Job | None, name: str) -> msgspec.Raw:
    for finished in (job, compensation):
        if finished is not None and finished.state is State.DONE:
            return JSON_NULL if finished.result is None else msgspec.Raw(finished.result)
    if job is None:
        raise ResultMissing(f"the result of job {name!r} is gone: the job was deleted")
    return JSON_NULL
