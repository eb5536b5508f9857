"""Is anybody there to run jobs?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill.cli.doctor.finding import Finding
from tidemill.cli.target import Target
from tidemill.contract.reader import WorkerInfo
from tidemill.inspect.views import Overview
from tidemill.inspect.words import plural


def start_one(target: Target) -> str:
    return f"start one: {target.worker_command()}"


def about_workers_here(workers: Iterable[WorkerInfo], host: str) -> Iterator[Finding]:
    here = [worker for worker in workers if worker.host == host]
    if here:
        yield Finding(about="workers", level="ok", says=f"{plural(len(here), 'worker')} of {host}")
    else:
        yield Finding(
            about="workers",
            level="bad",
            says=f"no worker of {host} is alive",
            remedy="restart it; its jobs are handed back when their leases are over",
        )


def about_workers(overview: Overview, target: Target) -> Iterator[Finding]:
    workers = overview.workers
    if not workers:
        yield Finding(about="workers", level="note", says="no worker is running", remedy=start_one(target))
        return
    slots, held = sum(worker.concurrency for worker in workers), sum(worker.holds for worker in workers)
    yield Finding(
        about="workers",
        level="ok",
        says=f"{plural(len(workers), 'worker')} with {plural(slots, 'slot')}, {held} taken",
    )
