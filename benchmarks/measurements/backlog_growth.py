"""Drains a fifth of a large backlog without a pause, to see if a job costs more at the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from benchmarks.case import Case
from benchmarks.measurements.drain import CpuAtStarts, preload
from benchmarks.worker_processes import start_workers

SLICE = 10_000
SKIPPED = 500
"""Starts to skip at the beginning: imports, first pages, first statements."""

SNAPSHOT = 60.0


def growth(case: Case) -> dict[str, float]:
    jobs = int(case.size) // 5
    piece = min(SLICE, jobs // 4)
    preload(case, int(case.size))
    with start_workers(case) as crew:
        marks = CpuAtStarts(case, crew, [SKIPPED, SKIPPED + piece, jobs - piece, jobs])
        crew.until(jobs, marks.look)
        return {
            "jobs_per_second": crew.started / crew.tally.span(crew.view),
            "first_us": marks.us_between(SKIPPED, SKIPPED + piece),
            "last_us": marks.us_between(jobs - piece, jobs),
            "longest_gap_ms": marks.longest_gap * 1e3,
        }


def growth_under_snapshot(case: Case) -> dict[str, float]:
    """Drains while a snapshot is open. PostgreSQL cannot remove rows that the snapshot may see, so dead
    rows remain."""
    with _snapshot(case.place.url):
        return growth(case)


@contextmanager
def _snapshot(url: str) -> Iterator[None]:
    """Opens a snapshot before the first write; closes it after a minute of draining, or at the end of the
    drain."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT txid_current_if_assigned()")
        closing = threading.Timer(SNAPSHOT, connection.rollback)
        closing.start()
        try:
            yield
        finally:
            closing.cancel()
            closing.join()
