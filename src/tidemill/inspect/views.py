"""Values that the inspector returns: views of queues, jobs and checkpoints, the overview, counts."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tidemill.contract.reader import AttemptRecord, LogLine, WorkerInfo
from tidemill.contract.store import StoreFacts
from tidemill.core.checkpoints import Checkpoint
from tidemill.core.claims import is_current
from tidemill.core.jobs import Job
from tidemill.core.overrides import Override
from tidemill.core.queues import Pause, QueueChanges, QueueSettings
from tidemill.core.states import State
from tidemill.inspect.forecast import Forecast
from tidemill.inspect.pools import PoolStatus


class CheckpointView(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint of a job: the step's `name`, a digest of its `arguments`, and its result.

    - `state`: "kept" if the result is stored; "begun" while the attempt runs; "unknown" if the attempt ended
      without a result, so the call may have been paid for
    - `begun`, `kept`: wall times at which the step began and its result was stored
    - `size`: bytes of the result as JSON
    - `unknown`: how often the step was called again after a call with an unknown outcome"""

    name: str
    arguments: str
    paid: bool
    state: Literal["kept", "begun", "unknown"]
    begun: float
    kept: float | None
    size: int | None
    unknown: int
    result: Any


def view_checkpoint(checkpoint: Checkpoint, job: Job) -> CheckpointView:
    by, result = checkpoint.by, checkpoint.result
    under_way = is_current(job, by.fence, by.claim)
    return CheckpointView(
        name=checkpoint.step.name,
        arguments=checkpoint.step.arguments,
        paid=checkpoint.paid,
        state="kept" if result is not None else "begun" if under_way else "unknown",
        begun=checkpoint.begun,
        kept=checkpoint.kept,
        size=None if result is None else len(result),
        unknown=checkpoint.unknown,
        result=None if result is None else msgspec.json.decode(result),
    )


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """The content, counters and settings of a queue. Times are wall times, durations are seconds.

    - `counts`: jobs in every state, including zeros
    - `size`: jobs that have not finished
    - `retrying`: scheduled jobs that have run before
    - `latency`: how long the oldest ready job has been ready
    - `next_due`: when the next scheduled job becomes ready
    - `last_ended`: when a job last finished
    - `processed`: jobs that ran and are done or failed for good, in the last 24 hours
    - `failed`, `cancelled`, `retried`, `reclaimed`: in the last 24 hours
    - `dropped_early`: finished jobs that were deleted before their retention age, in the last 24 hours
    - `settings`: the settings in force: the override merged with the `declared` ones
    - `workers`: ids of the workers that serve the queue
    - `forecast`: when the ready jobs will be done; None if there are none or it is unknown"""

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
    override: Override[QueueChanges] | None
    workers: tuple[str, ...]
    forecast: Forecast | None


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its unsuccessful attempts, log lines and checkpoints; each list is oldest first."""

    job: Job
    attempts: tuple[AttemptRecord, ...]
    log: tuple[LogLine, ...]
    checkpoints: tuple[CheckpointView, ...]

    @property
    def payload(self) -> Any:
        """The job's arguments as decoded JSON. A payload that is not JSON is returned as text."""
        return decode_payload(self.job.payload)

    @property
    def result(self) -> Any:
        """The handler's result as decoded JSON; None if there is no result."""
        return None if self.job.result is None else msgspec.json.decode(self.job.result)


def decode_payload(payload: bytes) -> Any:
    """Returns a payload as decoded JSON, or as text if it is not JSON."""
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return payload.decode(errors="replace")


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The state of queues, pools, workers and store at the wall time `now`."""

    now: float
    queues: tuple[QueueView, ...]
    pools: tuple[PoolStatus, ...]
    workers: tuple[WorkerInfo, ...]
    store: StoreFacts


class JobCount(msgspec.Struct, frozen=True):
    """How many jobs match. `more=True`: the count stopped early, and there may be further matches."""

    jobs: int
    more: bool = False

    def __bool__(self) -> bool:
        """True if at least one job matches, or if the count stopped early and a job may match."""
        return self.more or self.jobs > 0

    def __str__(self) -> str:
        return f"{self.jobs} or more" if self.more else str(self.jobs)


class BulkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a change of many jobs.

    - `changed`, `ids`: the number and the ids of the changed jobs, oldest first
    - `unchanged`, `unchanged_ids`: the number and the ids of the jobs whose state does not allow the change
    - `moved`: how many jobs matched at first, but no longer when they were to be changed"""

    changed: int
    unchanged: int
    moved: int
    ids: tuple[str, ...]
    unchanged_ids: tuple[str, ...]
