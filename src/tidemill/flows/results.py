"""Reads what the steps of a flow returned, for those that take it as an argument."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from tidemill.contract.store import Store
from tidemill.core.flow_jobs import COMPENSATION, GATHERED_BYTES, InFlow, Read, job_id
from tidemill.core.job import Job
from tidemill.core.states import State
from tidemill.flows.failure import ARGUMENTS

AT_ONCE = 100
"""Results may have 256 KiB each: no trip is a long one."""

NULL = msgspec.Raw(b"null")
Members = dict[str, msgspec.Raw]


class ResultGone(Exception):
    """A job whose result is wanted is no longer there."""


class ResultsTooLarge(Exception):
    """More than one job can be given."""


async def results_of(store: Store, flow: str, reads: Mapping[str, Read]) -> Members:
    """By argument, as JSON."""
    found: Members = {}
    room = GATHERED_BYTES
    for argument, read in reads.items():
        values: list[msgspec.Raw] = []
        async for some in _pages(store, flow, read.step, (0,) if read.count is None else range(read.count)):
            values += some
            room -= sum(map(len, some))
            if room < 0:
                raise ResultsTooLarge(
                    f"{argument}: what step {read.step!r} returned is too much: all results a job takes may "
                    f"have {GATHERED_BYTES} bytes together; store them elsewhere and return where they are"
                )
        found[argument] = values[0] if read.count is None else msgspec.Raw(msgspec.json.encode(values))
    return found


async def results(store: Store, flow: str, step: str, indexes: Sequence[int]) -> list[msgspec.Raw]:
    """Where a job failed, what its compensation returned; null where it was let go."""
    return [value async for some in _pages(store, flow, step, indexes) for value in some]


async def filled(store: Store, flow: InFlow, payload: bytes) -> bytes:
    """A payload with the results it was made without. What compensates has them among the arguments of the
    job that failed."""
    found = await results_of(store, flow.id, flow.reads)
    members = msgspec.json.decode(payload, type=Members)
    if not flow.step.endswith(COMPENSATION):
        return msgspec.json.encode({**members, **found})
    [(name, failure)] = members.items()
    fields = msgspec.json.decode(failure, type=Members)
    arguments = msgspec.json.decode(fields[ARGUMENTS], type=Members)
    return msgspec.json.encode({name: {**fields, ARGUMENTS: {**arguments, **found}}})


async def _pages(
    store: Store, flow: str, step: str, indexes: Sequence[int]
) -> AsyncIterator[list[msgspec.Raw]]:
    for start in range(0, len(indexes), AT_ONCE):
        some = indexes[start : start + AT_ONCE]
        found = await _jobs(store, flow, step, some)
        failed = [index for index, job in found.items() if job is None or job.state is not State.DONE]
        instead = await _jobs(store, flow, step + COMPENSATION, failed) if failed else {}
        yield [_result(found[index], instead.get(index), job_id(flow, step, index)) for index in some]


async def _jobs(store: Store, flow: str, step: str, indexes: Sequence[int]) -> dict[int, Job | None]:
    jobs = await store.get([job_id(flow, step, index) for index in indexes])
    return dict(zip(indexes, jobs, strict=True))


def _result(job: Job | None, instead: Job | None, name: str) -> msgspec.Raw:
    for one in (job, instead):
        if one is not None and one.state is State.DONE:
            return NULL if one.result is None else msgspec.Raw(one.result)
    if job is None:
        raise ResultGone(f"the result of job {name!r} is gone: somebody deleted the job")
    return NULL
