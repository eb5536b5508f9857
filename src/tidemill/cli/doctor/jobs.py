"""Jobs that need somebody: held by the dead, known to nobody, or killing whoever runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tidemill.app import Tidemill
from tidemill.cli.doctor.finding import Finding
from tidemill.cli.doctor.workers import start_one
from tidemill.cli.target import Target
from tidemill.core.filters import Filter
from tidemill.core.queues import DAY
from tidemill.core.states import State
from tidemill.core.transitions import POISON
from tidemill.inspect.views import Overview
from tidemill.inspect.words import duration, plural

LOOKED_AT = 1000
UNKNOWN = "does not know this task"


async def about_jobs(app: Tidemill, overview: Overview, target: Target) -> list[Finding]:
    return [finding async for finding in _findings(app, overview, target)]


async def _findings(app: Tidemill, overview: Overview, target: Target) -> AsyncIterator[Finding]:
    yield await _leases(app, overview, target)
    for finding in (await _unknown(app), await _poison(app, overview, target)):
        if finding is not None:
            yield finding


async def _leases(app: Tidemill, overview: Overview, target: Target) -> Finding:
    """A lease that has been over for a while means that nobody reclaims."""
    now = (await app.store.read_clock()).boot
    running = [job async for job in app.inspect.each(Filter(states=(State.RUNNING,)))]
    over = [job for job in running if job.lease <= now]
    if not over:
        return Finding(about="leases", level="ok", says=f"{plural(len(running), 'running job')}, all in time")
    longest = max(now - job.lease for job in over)
    are = "job is" if len(over) == 1 else "jobs are"
    return Finding(
        about="leases",
        level="bad",
        says=f"{len(over)} running {are} past the lease, up to {duration(longest)}, such as {over[0].id}: "
        "the worker that ran it is gone",
        remedy="wait: a worker takes them back within seconds"
        if overview.workers
        else f"{start_one(target)}; it takes them back",
    )


async def _unknown(app: Tidemill) -> Finding | None:
    wanted = Filter(states=(State.SCHEDULED,), text=UNKNOWN)
    found = [
        job
        for job in (await app.inspect.find(wanted, limit=LOOKED_AT, looks=None)).jobs
        if job.unknown_for > 0
    ]
    if not found:
        return None
    tasks = ", ".join(sorted({job.task for job in found})[:5])
    return Finding(
        about="tasks",
        level="bad",
        says=f"{plural(len(found), 'job')} of tasks that workers do not know: {tasks}",
        remedy="start a worker with the code that has them, or correct the name; after 24 hours a job fails",
    )


async def _poison(app: Tidemill, overview: Overview, target: Target) -> Finding | None:
    """Bad for a day: somebody has looked by then, and the job is kept much longer."""
    wanted = Filter(states=(State.FAILED,), text=POISON)
    found = [
        job
        for job in (await app.inspect.find(wanted, limit=LOOKED_AT, looks=None)).jobs
        if job.reason == POISON
    ]
    if not found:
        return None
    fresh = any(overview.now - (job.finished or 0.0) < DAY for job in found)
    return Finding(
        about="poison",
        level="bad" if fresh else "note",
        says=f"{plural(len(found), 'job')} ended the process that ran {'it' if len(found) == 1 else 'them'} "
        f"each time, such as {found[0].id} ({found[0].task})",
        remedy=f"look: {target.command('jobs', 'show', found[0].id)}; common causes are too little "
        "memory and crashes in C code",
    )
