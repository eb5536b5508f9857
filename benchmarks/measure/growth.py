"""A fifth of a large backlog is drained without a pause: does a job cost more at the end?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from benchmarks.case import Case
from benchmarks.measure.drains import Marks, preload
from benchmarks.team import team

SLICE = 10_000
SKIPPED = 500
"""Starts left out at the front: imports, first pages, first statements."""

SNAPSHOT = 60.0


def growth(case: Case) -> dict[str, float]:
    jobs = int(case.size) // 5
    piece = min(SLICE, jobs // 4)
    preload(case, int(case.size))
    with team(case) as crew:
        marks = Marks(case, crew, [SKIPPED, SKIPPED + piece, jobs - piece, jobs])
        crew.until(jobs, marks.look)
        return {
            "jobs_per_second": crew.started / crew.tally.span(crew.view),
            "first_us": marks.us_between(SKIPPED, SKIPPED + piece),
            "last_us": marks.us_between(jobs - piece, jobs),
            "longest_gap_ms": marks.longest_gap * 1e3,
        }


def growth_under_snapshot(case: Case) -> dict[str, float]:
    """PostgreSQL may remove nothing that an open snapshot could still see: what is done stays in the way."""
    with _snapshot(case.place.url):
        return growth(case)


@contextmanager
def _snapshot(url: str) -> Iterator[None]:
    """Open before anything is written; closed after a minute of draining, or with the drain."""
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
