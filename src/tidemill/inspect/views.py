"""What looking answers: values, as of one moment."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemill.contract.reader import AttemptRecord, LogLine, WorkerInfo
from tidemill.contract.upkeep import StoreFacts
from tidemill.core.job import Job
from tidemill.core.queues import Override, Pause, QueueSettings
from tidemill.core.states import State
from tidemill.inspect.draining import Forecast
from tidemill.inspect.pools import PoolStatus
from tidemill.inspect.steps import CheckpointView


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue holds, did and is set to. Times are wall times, durations seconds.

    counts: jobs in every state, states without any included.
    size: jobs that have not ended.
    retrying: those of the scheduled ones that have run before.
    latency: how long the ready job that waits longest could have been running; None when none is ready.
    next_due: when the next scheduled job becomes ready.
    last_ended: when a job last ended.
    processed, failed, cancelled, retried, reclaimed: in the last 24 hours. Processed jobs are those that
        are done and those that failed for good; a retried attempt or a reclaimed one is not an end, and
        a job that was archived by hand was not processed.
    dropped_early: jobs of the last 24 hours that left by count before their age was over.
    pause, override: None when none holds now.
    settings: what holds now, the override over what code `declared`.
    workers: the ids of those that serve the queue.
    forecast: when what is ready now will be done; None when nothing is, or nobody can say.
    """

    name: str
    counts: dict[State, int]
    size: int
    retrying: int
    latency: float | None
    next_due: float | None
    last_ended: float | None
    processed: int
    failed: int
    cancelled: int
    retried: int
    reclaimed: int
    dropped_early: int
    pause: Pause | None
    settings: QueueSettings
    declared: QueueSettings
    override: Override | None
    workers: tuple[str, ...]
    forecast: Forecast | None


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job, its attempts that did not succeed, the lines they logged, and its steps, oldest first."""

    job: Job
    attempts: tuple[AttemptRecord, ...]
    log: tuple[LogLine, ...]
    checkpoints: tuple[CheckpointView, ...]

    @property
    def payload(self) -> Any:
        """The arguments, as plain data."""
        return readable(self.job.payload)

    @property
    def result(self) -> Any:
        """What the handler returned, as plain data; None when there is nothing."""
        return None if self.job.result is None else msgspec.json.decode(self.job.result)


def readable(payload: bytes) -> Any:
    """As plain data; as text when it is not JSON, as a foreign producer's that was refused may be."""
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return payload.decode(errors="replace")


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at a glance, as of `now` on the store's wall clock."""

    now: float
    queues: tuple[QueueView, ...]
    pools: tuple[PoolStatus, ...]
    workers: tuple[WorkerInfo, ...]
    store: StoreFacts


class Count(msgspec.Struct, frozen=True):
    """How many jobs match; with `more`, so many were found before the search ended, and there may be
    others."""

    jobs: int
    more: bool = False

    def __bool__(self) -> bool:
        """Whether there may be any."""
        return self.more or self.jobs > 0

    def __str__(self) -> str:
        return f"{self.jobs} or more" if self.more else str(self.jobs)


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs a change was meant for.

    changed: how many it was applied to; `ids` names them, oldest first.
    unchanged: how many were in no state for it, such as the retry of one that has not ended.
    moved: how many matched when they were found and no longer when their turn came.
    """

    changed: int
    unchanged: int
    moved: int
    ids: tuple[str, ...]
    unchanged_ids: tuple[str, ...]
