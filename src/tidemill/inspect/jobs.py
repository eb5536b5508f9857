"""Finds, counts and changes many jobs by a filter, in short transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.operator_changes import OperatorChange
from tidemill.core.states import State
from tidemill.errors import JobNotFound
from tidemill.inspect.views import BulkResult, JobCount

MAX_COUNTED_JOBS = 1000
"""At most this many matches are counted. Reading a match takes longer than skipping other jobs."""
JOBS_PER_PAGE = 1000
JOBS_PER_CHANGE = 500
"""Jobs per transaction of a bulk change, so that no transaction blocks the writer for long."""

OnChangeProgress = Callable[[int], None]
"""Receives the number of jobs processed so far."""


async def iterate_jobs(store: Store, job_filter: Filter) -> AsyncIterator[Job]:
    cursor: int | None = None
    while True:
        page = await store.find(job_filter, JOBS_PER_PAGE, cursor)
        for job in page.jobs:
            yield job
        if page.cursor is None:
            return
        cursor = page.cursor


async def count_jobs(store: Store, job_filter: Filter, scan_limit: int | None) -> JobCount:
    """Returns how many jobs match. A filter with only a queue and states is counted exactly and at once.

    With any other filter jobs are read, up to `scan_limit` jobs or 1000 matches. `scan_limit=None`: all jobs
    are read."""
    if job_filter == Filter(queue=job_filter.queue, states=job_filter.states):
        return JobCount(await _sum_counts(store, job_filter))
    if scan_limit is not None:
        page = await store.find(job_filter, min(scan_limit, MAX_COUNTED_JOBS), scan_limit=scan_limit)
        return JobCount(len(page.jobs), more=page.cursor is not None)
    count = 0
    async for _ in iterate_jobs(store, job_filter):
        count += 1
    return JobCount(count)


async def _sum_counts(store: Store, job_filter: Filter) -> int:
    counts = await store.counts()
    queues = counts if job_filter.queue is None else {job_filter.queue: counts.get(job_filter.queue, {})}
    states = set(State) if job_filter.states is None else set(job_filter.states)
    return sum(states_of.get(state, 0) for states_of in queues.values() for state in states)


async def change_jobs(
    store: Store, job_filter: Filter, what: OperatorChange, progress: OnChangeProgress | None = None
) -> BulkResult:
    """Applies the change `what` to all matching jobs, oldest first, in short transactions.

    A job that no longer matches is skipped. `progress` is called with the number of jobs processed so far."""
    ids = await _find_ids(store, job_filter)
    changed: list[str] = []
    unchanged: list[str] = []
    processed = 0
    for chunk in _split_ids(ids):
        result = await store.amend(replace(job_filter, ids=chunk), what, len(chunk))
        changed += result.changed
        unchanged += result.unchanged
        processed += len(chunk)
        if progress is not None:
            progress(processed)
    return BulkResult(
        changed=len(changed),
        unchanged=len(unchanged),
        moved=len(ids) - len(changed) - len(unchanged),
        ids=tuple(changed),
        unchanged_ids=tuple(unchanged),
    )


async def _find_ids(store: Store, job_filter: Filter) -> list[str]:
    if job_filter.ids is None:
        newest_first = [job.id async for job in iterate_jobs(store, job_filter)]
        return newest_first[::-1]
    named = list(dict.fromkeys(job_filter.ids))
    found: list[str] = []
    for chunk in _split_ids(named):
        page = await store.find(replace(job_filter, ids=chunk), len(chunk))
        found += (job.id for job in reversed(page.jobs))
    return found


def _split_ids(ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(ids), JOBS_PER_CHANGE):
        yield tuple(ids[start : start + JOBS_PER_CHANGE])


async def require_job(store: Store, id: str) -> Job:  # noqa: A002 - the word for it
    [job] = await store.get([id])
    if job is None:
        raise JobNotFound(f"there is no job {id!r}: the id is wrong, or it was pruned")
    return job
