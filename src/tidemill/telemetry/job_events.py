"""Events of jobs, flows and schedules."""

from __future__ import annotations

from typing import ClassVar

from tidemill.telemetry.event_base import AttemptEvent, Event, JobEvent, LogLevel, WorkerEvent


class JobEnqueued(JobEvent, frozen=True, kw_only=True):
    """The store accepted a job. `existing` is True if the store had a job with the same id or unique key,
    which is used instead."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "job enqueued"

    existing: bool


class LargePayload(Event, frozen=True, kw_only=True):
    """A client enqueued a job whose payload has more bytes than the task's `warn_bytes`. Emitted at most once
    a minute per task."""

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
    """The store recorded that an attempt succeeded. The attempt began `waited` seconds after the job was due
    and ran for `seconds`."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "job done"

    seconds: float
    waited: float


class JobRetrying(AttemptEvent, frozen=True, kw_only=True):
    """The store recorded a failed attempt. The next attempt follows after `delay` seconds."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "job will be retried"

    seconds: float
    delay: float
    error: str
    message: str


class JobFailed(AttemptEvent, frozen=True, kw_only=True):
    """The store recorded that a job failed for good. `reason` is `poison` if the job crashed too often."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "job failed"

    seconds: float
    reason: str
    error: str
    message: str
    traceback: str | None = None


class JobSnoozed(AttemptEvent, frozen=True, kw_only=True):
    """A handler postponed its job by `delay` seconds. The attempt does not count."""

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
    """A worker gave a job back to the store, so that any worker can claim it again. `reason` says why. The
    attempt does not count."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "job released"

    seconds: float
    reason: str


class JobStartMissed(AttemptEvent, frozen=True, kw_only=True):
    """A worker gave a job back to the store, because its handler would have started `late` seconds too late.
    Its call could not have reached the provider within the pool's jitter."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "job released: too late to start"
    is_log_throttled: ClassVar[bool] = True

    late: float


class BatchSplit(AttemptEvent, frozen=True, kw_only=True):
    """The call of a batch of `jobs` jobs failed. The jobs are tried again in `parts` smaller batches. The
    attempt does not count."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "batch split"
    is_log_throttled: ClassVar[bool] = True

    jobs: int
    parts: int
    error: str
    message: str


class CheckpointSaved(AttemptEvent, frozen=True, kw_only=True):
    """The store saved the result of a step, which has `size` bytes as JSON. `arguments` is a digest of the
    step's arguments."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "checkpoint saved"

    step: str
    arguments: str
    paid: bool
    size: int


class CheckpointReused(AttemptEvent, frozen=True, kw_only=True):
    """A step was skipped, because the store already has its result."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "checkpoint reused"

    step: str
    arguments: str
    paid: bool


class StepOutcomeUnknown(AttemptEvent, frozen=True, kw_only=True):
    """The paid call of a step began in an earlier attempt, and its result is unknown. `on_unknown` says what
    follows: `retry` repeats the call, `park` fails the job."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "step outcome unknown"

    step: str
    arguments: str
    on_unknown: str


class JobCrashed(AttemptEvent, frozen=True, kw_only=True):
    """The child process of a job died. The job may run again."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "job crashed"

    seconds: float
    crashes: int
    error: str
    message: str


class AttemptStopped(AttemptEvent, frozen=True, kw_only=True):
    """A worker stopped an attempt whose claim is lost, because the job was cancelled or its lease expired."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "attempt stopped: claim lost"
    is_log_throttled: ClassVar[bool] = True

    seconds: float


class OutcomeRefused(AttemptEvent, frozen=True, kw_only=True):
    """The store refused an outcome. `answer` is `stale` if the claim is no longer current, and `gone` if the
    job was deleted."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "outcome refused"
    is_log_throttled: ClassVar[bool] = True

    outcome: str
    answer: str


class JobReclaimed(AttemptEvent, frozen=True, kw_only=True):
    """A job was reclaimed from `worker`, which has died or sends no heartbeat. The job may run again."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "job reclaimed"

    crashes: int
    error: str
    message: str


class UnknownTaskReleased(WorkerEvent, frozen=True, kw_only=True):
    """A worker gave a job back to the store, because it does not know the job's task. Emitted once per worker
    and task."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "job released: unknown task"

    task: str
    queue: str
    known: tuple[str, ...]


class LeaseExpired(AttemptEvent, frozen=True, kw_only=True):
    """A worker gave a job back before its handler started, because the lease had expired `late` seconds
    earlier."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "lease expired before the start"

    late: float


class ChildStartFailed(AttemptEvent, frozen=True, kw_only=True):
    """A child process failed before the handler of its job began. The attempt does not count, and the job is
    tried again after `retry_in` seconds."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "child process failed to start"

    problem: str
    retry_in: float


class SuspectNotIsolated(WorkerEvent, frozen=True, kw_only=True):
    """A job with a recorded crash runs in the worker process, because no child process can run it. `problem`
    says why."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "suspect job runs in the worker"

    task: str
    problem: str


class LifespanSkipped(WorkerEvent, frozen=True, kw_only=True):
    """A task with `isolate=True` runs without the application's lifespan, because the lifespan failed in the
    child process. Emitted once per task and `problem`."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "isolated task runs without the lifespan"

    task: str
    problem: str


class SlotStuck(AttemptEvent, frozen=True, kw_only=True):
    """An attempt was stopped, but its code still runs. Its slot stays occupied until the code ends."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "slot stuck"

    seconds: float


class FlowStarted(Event, frozen=True, kw_only=True):
    """The store accepted a flow that this process started. `existing` is True if a flow with the same key
    existed already."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "flow started"

    flow: str
    name: str
    steps: int
    existing: bool


class FlowEnded(Event, frozen=True, kw_only=True):
    """A flow is done, failed or cancelled, `seconds` after it began. A flow that is retried can end again."""

    level: ClassVar[LogLevel] = "debug"
    sentence: ClassVar[str] = "flow ended"

    flow: str
    name: str
    state: str
    seconds: float
    reason: str | None


class ScheduleFired(WorkerEvent, frozen=True, kw_only=True):
    """A schedule created the job of a tick. `tick` is the wall time of the tick, and the job was created
    `seconds` later."""

    sentence: ClassVar[str] = "schedule fired"
    is_log_throttled: ClassVar[bool] = True

    schedule: str
    tick: float
    job: str
    seconds: float


class ScheduleSkipped(WorkerEvent, frozen=True, kw_only=True):
    """A schedule created no job for `count` ticks. `tick` is the wall time of the last of them, and `reason`
    is `missed`, `overlap` or `failed`."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "schedule skipped"
    is_log_throttled: ClassVar[bool] = True

    schedule: str
    tick: float
    reason: str
    count: int
