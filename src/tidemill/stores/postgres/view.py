"""What one step has seen so far of the rows that others may move."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from asyncpg import Record

from tidemill.core.job import Job
from tidemill.engine import wants
from tidemill.engine.wants import Beginning, Numbers, Want
from tidemill.stores.postgres.rows import job_of
from tidemill.stores.postgres.step import Step

if TYPE_CHECKING:
    from tidemill.stores.postgres.look_lanes import Plain

Found = dict[Want, Any]


class View:
    """`plain` and `open` are the lanes '' and the other open lanes of their groups, by queue: whatever is
    looked up of one is answered anew with the other, or the two would not fit together."""

    def __init__(self, step: Step, numbers: Numbers) -> None:
        self.step, self.numbers = step, numbers
        self.plain: dict[str, Plain] = {}
        self.open: dict[str, Beginning] = {}

    async def fetch(self, sql: str, *values: Any) -> list[Record]:
        return await self.step.fetch(sql, *values)


def put_jobs(rows: Iterable[Record], found: Found) -> list[Job]:
    jobs = [job_of(row) for row in rows]
    for job in jobs:
        found[wants.JobOf(job.id)] = job
    return jobs
