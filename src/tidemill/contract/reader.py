"""Reading: never needed for running a job, never in the way of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidemill.core.demand import Demand
from tidemill.core.filters import Filter
from tidemill.core.job import Error, Job
from tidemill.core.queues import DAY
from tidemill.core.states import State


class Page(msgspec.Struct, frozen=True):
    """`cursor` continues where this page ends; None when it is the last. `partial`: as many jobs were looked
    at as were to be, and the page is not full for that; there may be others, and `cursor` looks on."""

    jobs: tuple[Job, ...]
    cursor: int | None
    partial: bool = False


class LogLine(msgspec.Struct, frozen=True):
    generation: int
    attempt: int
    at: float
    line: str


class AttemptRecord(msgspec.Struct, frozen=True):
    """How an attempt that did not succeed ended: `outcome` is retry, fail, crashed or reclaimed."""

    generation: int
    attempt: int
    started: float | None
    ended: float
    worker: str | None
    outcome: str
    error: Error | None


class Minute(msgspec.Struct, frozen=True):
    """What a queue did in one minute (`at` is its start): counters, not records. Jobs that a person
    archived are not in it: nothing was done. `dropped_early` are jobs that left by count before their age was
    over (J84)."""

    at: float
    done: int
    failed: int
    cancelled: int
    retried: int
    reclaimed: int
    dropped_early: int = 0


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue's counters do not tell. Times are wall times, None when there is no such job.

    oldest_ready: since when the ready job that waits longest could have started.
    next_due: when the next scheduled job becomes ready; in the past when nobody promotes it.
    retrying: scheduled jobs that have run before.
    last_ended: when a job last ended, as far as the jobs that are kept and the history know.
    """

    oldest_ready: float | None
    next_due: float | None
    retrying: int
    last_ended: float | None


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    holds: int
    seen: float


class Reader(Protocol):
    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        """R1 One answer per id, in order."""
        ...

    async def find(
        self, wanted: Filter, limit: int = 100, cursor: int | None = None, looks: int | None = None
    ) -> Page:
        """R2 Newest first; following `cursor` meets every matching job once, whatever is
        inserted meanwhile. What matches is `core.matching.matches`; a filter with a `problem` is
        refused (ConfigurationError).
        R11 With `looks`, a page ends at the latest when so many jobs were looked at, full or not: then it is
        `partial`, and its cursor goes on behind them. So a page takes no longer the more jobs there are. Jobs
        that a store passes over by an order it keeps were not looked at."""
        ...

    async def counts(self) -> dict[str, dict[State, int]]:
        """R3 Jobs per queue and state; equals a recount at every instant."""
        ...

    async def history(self, queue: str, since: float) -> list[Minute]:
        """R4 Minute by minute since that wall time, quiet minutes left out; survives pruning
        of the jobs it counts, for HISTORY_KEPT."""
        ...

    async def logs(self, job: str) -> list[LogLine]:
        """R5 The last LOG_LINES lines of each attempt, oldest first."""
        ...

    async def attempts(self, job: str) -> list[AttemptRecord]:
        """R6 Attempts that did not succeed, oldest first, the last ATTEMPTS_KEPT of them."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """R7 Workers whose lease runs."""
        ...

    async def backlog(self, queue: str) -> Backlog:
        """R8 Exact; a queue nobody knows has an empty one. Costs O(log n) for every lane and priority."""
        ...

    async def ahead(self, job: str) -> int | None:
        """R9 How many ready jobs of its lane start before a ready job, counted up to AHEAD_COUNTED;
        None when it is not ready."""
        ...

    async def demand(self) -> list[Demand]:
        """R10 What the ready jobs that need pools or share calls ask for, by queue, lane and priority.
        The jobs are counted exactly; what one needs is the average of those of its lane and priority that
        start first (`core.demand`)."""
        ...


LOG_LINES = 200
HISTORY_KEPT = 8 * DAY
ATTEMPTS_KEPT = 100
AHEAD_COUNTED = 10_000
LOOKS = 5000
"""So many jobs are looked at for a page that somebody waits for."""
