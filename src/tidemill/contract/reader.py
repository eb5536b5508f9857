"""The part of the contract with read-only queries. A query never makes a job wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidemill.core.filters import Filter
from tidemill.core.forecast.backlog import Demand
from tidemill.core.jobs import Error, Job
from tidemill.core.queues import DAY_SECONDS
from tidemill.core.states import State


class JobPage(msgspec.Struct, frozen=True):
    """A page of jobs.

    - `cursor`: the argument for the next page; None on the last page.
    - `partial`: True if the page ended early, because `scan_limit` jobs were examined."""

    jobs: tuple[Job, ...]
    cursor: int | None
    partial: bool = False


class LogLine(msgspec.Struct, frozen=True):
    """A stored log line of a handler. `attempt` counts within `generation`; `at` is a wall time."""

    generation: int
    attempt: int
    at: float
    line: str


class AttemptRecord(msgspec.Struct, frozen=True):
    """The end of an attempt that did not succeed. `outcome` is "retry", "fail", "crashed" or "reclaimed".
    `started` and `ended` are wall times."""

    generation: int
    attempt: int
    started: float | None
    ended: float
    worker: str | None
    outcome: str
    error: Error | None


class QueueMinute(msgspec.Struct, frozen=True):
    """The counters of a queue for one minute. Jobs that an operator archived are not counted.

    - `at`: the wall time at which the minute starts.
    - `dropped_early`: finished jobs that were deleted before their retention age (J84)."""

    at: float
    done: int
    failed: int
    cancelled: int
    retried: int
    reclaimed: int
    dropped_early: int = 0


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a queue beyond its counters. Times are wall times; None if there is no such job.

    - `oldest_ready`: since when the longest-waiting ready job could have started.
    - `next_due`: when the next scheduled job becomes ready; in the past if the job was not promoted yet.
    - `retrying`: how many scheduled jobs have run before.
    - `last_ended`: when a job last ended."""

    oldest_ready: float | None
    next_due: float | None
    retrying: int
    last_ended: float | None


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, as its last heartbeat reported it.

    - `holds`: the number of jobs that it runs.
    - `seen`: the wall time of its last heartbeat."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    holds: int
    seen: float


class StoreReader(Protocol):
    """Read-only queries about jobs, queues and workers."""

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        """Returns the jobs with these ids.

        R1  One answer per id, in order; None for a job that does not exist."""
        ...

    async def find(
        self, job_filter: Filter, limit: int = 100, cursor: int | None = None, scan_limit: int | None = None
    ) -> JobPage:
        """Returns a page of up to `limit` jobs that match `job_filter`, newest first.

        R2  Following `cursor` returns every matching job once, even if jobs are inserted meanwhile.
            `core.filters.matches_filter` says which jobs match. An invalid filter raises ConfigurationError.
        R11 With `scan_limit`, a page ends at the latest after that many jobs were examined, full or not. The
            page is then `partial`, and its cursor continues after the examined jobs. Jobs that a store skips
            by an index do not count as examined."""
        ...

    async def counts(self) -> dict[str, dict[State, int]]:
        """Returns the number of jobs by queue and state.

        R3  The numbers are exact at every moment."""
        ...

    async def history(self, queue: str, since: float) -> list[QueueMinute]:
        """Returns the counters of a queue per minute, since the wall time `since`. Minutes without changes
        are left out.

        R4  The history is kept for HISTORY_SECONDS, also after its jobs are pruned."""
        ...

    async def logs(self, job: str) -> list[LogLine]:
        """Returns the log lines of a job, oldest first.

        R5  The last LOG_LINES_PER_ATTEMPT lines of each attempt are kept."""
        ...

    async def attempts(self, job: str) -> list[AttemptRecord]:
        """Returns the unsuccessful attempts of a job, oldest first.

        R6  At most the last ATTEMPTS_KEPT attempts are kept."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """Returns the workers that are alive.

        R7  A worker is listed while its lease is valid."""
        ...

    async def backlog(self, queue: str) -> Backlog:
        """Returns facts about the waiting jobs of a queue.

        R8  The facts are exact. The backlog of an unknown queue is empty. The cost is O(log n) per lane
            and priority."""
        ...

    async def ahead(self, job: str) -> int | None:
        """Returns how many jobs of the lane start before the ready job `job`; None if `job` is not ready.

        R9  The count stops at MAX_AHEAD_COUNTED."""
        ...

    async def demand(self) -> list[Demand]:
        """Returns the number of ready jobs, and the units that one job needs, per queue, lane and priority.

        Only jobs that need pools or belong to batch tasks are counted.

        R10 Jobs are counted exactly. The need per job is an average over the jobs that start first
            (`core.forecast.backlog`)."""
        ...


LOG_LINES_PER_ATTEMPT = 200
HISTORY_SECONDS = 8 * DAY_SECONDS
ATTEMPTS_KEPT = 100
MAX_AHEAD_COUNTED = 10_000
DEFAULT_SCAN_LIMIT = 5000
"""The most jobs examined for one page of an interactive search."""
