"""Everything there is, out of these records and into them."""

from __future__ import annotations

from itertools import islice

from msgspec.structs import replace

from tidemill.contract.copying import Copies, IdCopy, IdPage, JobCopy
from tidemill.engine import copying
from tidemill.engine.records import Records
from tidemill.stores.memory import reader


def copy_jobs(records: Records, after: int, limit: int) -> list[JobCopy]:
    """U5."""
    behind = (job for job in records.jobs.values() if job.seq > after)
    return [
        JobCopy(
            job=job,
            attempts=tuple(reader.attempts(records, job.id)),
            logs=tuple(reader.logs(records, job.id)),
            checkpoints=tuple(records.checkpoints.get(job.id, {}).values()),
        )
        for job in islice(behind, limit)
    ]


def copy_ids(records: Records) -> IdPage:
    """U6."""
    known = ((request, records.recall(request)) for request in records.memory)
    return IdPage(
        tuple(
            IdCopy(request=request, verdict=told.verdict, job=told.id, fence=told.fence, claim=told.claim)
            for request, told in known
            if told is not None
        ),
        None,
    )


def copy_in(records: Records, copies: Copies) -> None:
    """U7."""
    copying.copy_in(records, copies)
    for arrival in copies.arrivals:
        records.arrival_seq += 1
        records.arrivals[records.arrival_seq] = replace(arrival, seq=records.arrival_seq)
    records.fence = max(records.fence, copies.fence)
