"""Is anybody there to run jobs?"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.cli.doctor.finding import Finding
from tidemill.cli.target import Target
from tidemill.inspect.views import Overview
from tidemill.inspect.words import plural


def start_one(target: Target) -> str:
    return f"start one: {target.worker_command()}"


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
