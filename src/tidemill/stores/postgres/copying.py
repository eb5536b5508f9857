"""Everything there is, out of this database and into it."""

from __future__ import annotations

from tidemill.contract.copying import Copies, IdCopy, IdPage, JobCopy
from tidemill.core.queues import Verdict
from tidemill.engine import copying, plans
from tidemill.stores.postgres import reader
from tidemill.stores.postgres.connection import Connection
from tidemill.stores.postgres.home import Home
from tidemill.stores.postgres.rows import COLUMNS, job_of
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.step import Step

SQL = load("copying")
_JOBS = SQL.jobs.replace("{columns}", COLUMNS)
IDS_AT_ONCE = 1000


async def copy_jobs(connection: Connection, after: int, limit: int) -> list[JobCopy]:
    """U5."""
    jobs = [job_of(row) for row in await connection.fetch(_JOBS, after, limit)]
    return [
        JobCopy(
            job=job,
            attempts=tuple(await reader.attempts(connection, job.id)),
            logs=tuple(await reader.logs(connection, job.id)),
            checkpoints=tuple(await reader.checkpoints(connection, job.id)),
        )
        for job in jobs
    ]


async def copy_ids(connection: Connection, cursor: str) -> IdPage:
    """U6."""

    async def read(step: Step) -> IdPage:
        time = await step.time()
        now = (time.wall, time.boot, step.clock.boot_id)
        rows = await step.fetch(SQL.ids, cursor, IDS_AT_ONCE, *now)
        ids = tuple(
            IdCopy(request=id_, verdict=Verdict(verdict), job=job, fence=fence, claim=claim)
            for id_, verdict, job, fence, claim in rows
        )
        return IdPage(ids, ids[-1].request if len(ids) == IDS_AT_ONCE else None)

    return await connection.run(read)


async def copy_in(home: Home, copies: Copies) -> None:
    """U7."""

    async def work(step: Step) -> None:
        await home.run_in(step, plans.copy_in(copies), lambda records: copying.copy_in(records, copies))
        rows = [
            (one.id, one.task, one.payload.decode(), one.options.decode(), str(one.arrived))
            for one in copies.arrivals
        ]
        if rows:
            await step.fetch(SQL.arrivals, *map(list, zip(*rows, strict=True)))
        await step.fetch(SQL.raise_fence, copies.fence)

    await home.connection.run(work)
