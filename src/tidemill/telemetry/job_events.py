"""Events of jobs, flows and schedules."""

from __future__ import annotations

from typing import ClassVar

from tidemill.telemetry.event_base import AttemptEvent, Event, JobEvent, LogLevel, WorkerEvent


class JobEnqueued(JobEvent, frozen=True, kw_only=True):
    """The store accepted a job. `existing`: an earlier job with its id or unique key is used instead."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "job enqueued"

    existing: bool


class LargePayload(Event, frozen=True, kw_only=True):
    """A client enqueued a payload larger than the task's `warn_bytes`; at most once a minute per task."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "large payload"

    task: str
    size: int
    warn_bytes: int
    max_bytes: int


class JobStarted(AttemptEvent, frozen=True, kw_only=True):
    """An attempt started, `waited` seconds after the job was due."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "job started"

    waited: float


class JobDone(AttemptEvent, frozen=True, kw_only=True):
    """The store recorded a success. The attempt began `waited` s after the due time, and ran `seconds` s."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "job done"

    seconds: float
    waited: float


class JobRetrying(AttemptEvent, frozen=True, kw_only=True):
    """The store recorded a failed attempt; the next one follows after `delay` seconds."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "job will be retried"

    seconds: float
    delay: float
    error: str
    message: str


class JobFailed(AttemptEvent, frozen=True, kw_only=True):
    """The store recorded that a job failed for good; `reason` is `poison` after too many crashes."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "job failed"

    seconds: float
    reason: str
    error: str
    message: str
    traceback: str | None = None


class JobSnoozed(AttemptEvent, frozen=True, kw_only=True):
    """A handler put its job off for `delay` seconds; the attempt does not count."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "job snoozed"

    seconds: float
    delay: float
    reason: str | None = None
    dependency: str | None = None


class DependencyUnreachable(AttemptEvent, frozen=True, kw_only=True):
    """A job waits for a service that its handler could not use; the next try follows in `retry_in` s."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "dependency unreachable"
    is_log_throttled: ClassVar[bool] = True

    dependency: str
    problem: str
    retry_in: float


class JobReleased(AttemptEvent, frozen=True, kw_only=True):
    """A worker gave a job back because of `reason` (refused, too late, …); the attempt does not count."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "job released"

    seconds: float
    reason: str


class JobStartMissed(AttemptEvent, frozen=True, kw_only=True):
    """A worker gave a job back: it was `late` s behind the latest start that the pool's jitter allows."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "job released: too late to start"
    is_log_throttled: ClassVar[bool] = True

    late: float


class BatchSplit(AttemptEvent, frozen=True, kw_only=True):
    """A call for `jobs` jobs failed. They are retried in `parts` smaller calls; no attempt is counted."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "batch split"
    is_log_throttled: ClassVar[bool] = True

    jobs: int
    parts: int
    error: str
    message: str


class CheckpointSaved(AttemptEvent, frozen=True, kw_only=True):
    """The store saved a step's result, `size` bytes of JSON; `arguments` is a digest of its arguments."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "checkpoint saved"

    step: str
    arguments: str
    paid: bool
    size: int


class CheckpointReused(AttemptEvent, frozen=True, kw_only=True):
    """A step was skipped because its result was stored already."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "checkpoint reused"

    step: str
    arguments: str
    paid: bool


class StepOutcomeUnknown(AttemptEvent, frozen=True, kw_only=True):
    """A step's paid call began but has no result. `on_unknown`: `retry` repeats it, `park` fails the job."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "step outcome unknown"

    step: str
    arguments: str
    on_unknown: str


class JobCrashed(AttemptEvent, frozen=True, kw_only=True):
    """The child process of a job died; the job may run again."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "job crashed"

    seconds: float
    crashes: int
    error: str
    message: str


class AttemptStopped(AttemptEvent, frozen=True, kw_only=True):
    """An attempt was stopped because its claim is lost: the job was cancelled, or its lease expired."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "attempt stopped: claim lost"
    is_log_throttled: ClassVar[bool] = True

    seconds: float


class OutcomeRefused(AttemptEvent, frozen=True, kw_only=True):
    """The store refused an outcome: another worker has the job now (`stale`), or it was deleted (`gone`)."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "outcome refused"
    is_log_throttled: ClassVar[bool] = True

    outcome: str
    answer: str


class JobReclaimed(AttemptEvent, frozen=True, kw_only=True):
    """A job was reclaimed from a silent or dead `worker` and may run again."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "job reclaimed"

    crashes: int
    error: str
    message: str


class UnknownTaskReleased(WorkerEvent, frozen=True, kw_only=True):
    """A worker gave back a job whose task it does not know; reported once per worker and task."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "job released: unknown task"

    task: str
    queue: str
    known: tuple[str, ...]


class LeaseExpired(AttemptEvent, frozen=True, kw_only=True):
    """A worker gave a job back before its start, because its lease had expired `late` seconds ago."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "lease expired before the start"

    late: float


class ChildStartFailed(AttemptEvent, frozen=True, kw_only=True):
    """A child process failed before its job began. No attempt counts; next try in `retry_in` seconds."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "child process failed to start"

    problem: str
    retry_in: float


class SuspectNotIsolated(WorkerEvent, frozen=True, kw_only=True):
    """A job with a recorded crash runs in the worker, not in a child process, because of `problem`."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "suspect job runs in the worker"

    task: str
    problem: str


class LifespanSkipped(WorkerEvent, frozen=True, kw_only=True):
    """The app's lifespan failed in a child process; a task runs without it. Once per task and `problem`."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "isolated task runs without the lifespan"

    task: str
    problem: str


class SlotStuck(AttemptEvent, frozen=True, kw_only=True):
    """An attempt was stopped but its code still runs; its slot stays occupied until the code ends."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "slot stuck"

    seconds: float


class FlowStarted(Event, frozen=True, kw_only=True):
    """The store accepted a flow of this client; `existing`: a flow with this key existed already."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "flow started"

    flow: str
    name: str
    steps: int
    existing: bool


class FlowEnded(Event, frozen=True, kw_only=True):
    """A flow is done, failed or cancelled, `seconds` after it began; a retried flow ends again."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "flow ended"

    flow: str
    name: str
    state: str
    seconds: float
    reason: str | None


class ScheduleFired(WorkerEvent, frozen=True, kw_only=True):
    """A schedule created the job of a `tick` (wall time), `seconds` after the tick."""

    sentence: ClassVar[str] = "schedule fired"
    is_log_throttled: ClassVar[bool] = True

    schedule: str
    tick: float
    job: str
    seconds: float


class ScheduleSkipped(WorkerEvent, frozen=True, kw_only=True):
    """`count` ticks, the last at `tick` (wall time), ran no job; `reason` is missed, overlap or failed."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "schedule skipped"
    is_log_throttled: ClassVar[bool] = True

    schedule: str
    tick: float
    reason: str
    count: int
