"""Copies the content of the memory store out to another store, or in from another store."""

from __future__ import annotations

from itertools import islice

from msgspec.structs import replace

from tidemill.contract.copy import IdCopy, IdPage, JobCopy, StoreCopy
from tidemill.engine import copy
from tidemill.engine.records import Records
from tidemill.stores.memory import reader


def copy_jobs(records: Records, after: int, limit: int) -> list[JobCopy]:
    """Returns up to `limit` jobs with their attempts, log lines and checkpoints, oldest first (U5). Only jobs
    whose sequence number (`Job.seq`) is above `after` are returned."""
    later = (job for job in records.jobs.values() if job.seq > after)
    return [
        JobCopy(
            job=job,
            attempts=tuple(reader.attempts(records, job.id)),
            logs=tuple(reader.logs(records, job.id)),
            checkpoints=tuple(records.checkpoints.get(job.id, {}).values()),
        )
        for job in islice(later, limit)
    ]


def copy_ids(records: Records) -> IdPage:
    """Returns all remembered ids in one page: ids of enqueue requests whose job was deleted or never created
    (U6)."""
    known = ((request, records.find_known_id(request)) for request in records.memory)
    return IdPage(
        tuple(
            IdCopy(
                request=request, verdict=answer.verdict, job=answer.id, fence=answer.fence, claim=answer.claim
            )
            for request, answer in known
            if answer is not None
        ),
        None,
    )


def copy_in(records: Records, copies: StoreCopy) -> None:
    """Inserts the rows that were read from another store (U7)."""
    copy.copy_in(records, copies)
    for arrival in copies.arrivals:
        records.arrival_seq += 1
        records.arrivals[records.arrival_seq] = replace(arrival, seq=records.arrival_seq)
    records.fence = max(records.fence, copies.fence)
