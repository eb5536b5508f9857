"""What happens to jobs."""

from __future__ import annotations

from typing import ClassVar

from tidemill.telemetry.base import AttemptEvent, Event, JobEvent, Level, WorkerEvent


class JobEnqueued(JobEvent, frozen=True, kw_only=True):
    """The store accepted a job of this client; `existing`: a job that was there already stands for it."""

    level: ClassVar[Level] = "debug"
    sentence: ClassVar[str] = "job enqueued"

    existing: bool


class PayloadLarge(Event, frozen=True, kw_only=True):
    """A client made a job whose payload is over the task's `warn_bytes`; once a minute and task at most."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "large payload"

    task: str
    size: int
    warn_bytes: int
    max_bytes: int


class JobStarted(AttemptEvent, frozen=True, kw_only=True):
    """An attempt got its slot, `waited` seconds after the job was due."""

    level: ClassVar[Level] = "debug"
    sentence: ClassVar[str] = "job started"

    waited: float


class JobDone(AttemptEvent, frozen=True, kw_only=True):
    """The store recorded a success: `seconds` is how long the attempt ran, `waited` from due to start."""

    level: ClassVar[Level] = "debug"
    sentence: ClassVar[str] = "job done"

    seconds: float
    waited: float


class JobRetrying(AttemptEvent, frozen=True, kw_only=True):
    """The store recorded a failed attempt; another follows after `delay` seconds."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "job will be retried"

    seconds: float
    delay: float
    error: str
    message: str


class JobFailed(AttemptEvent, frozen=True, kw_only=True):
    """The store recorded that a job failed for good; `reason` is `poison` after too many crashes."""

    level: ClassVar[Level] = "error"
    sentence: ClassVar[str] = "job failed"

    seconds: float
    reason: str
    error: str
    message: str
    traceback: str | None = None


class JobSnoozed(AttemptEvent, frozen=True, kw_only=True):
    """The store recorded that a handler wants to come back after `delay` seconds, uncharged."""

    level: ClassVar[Level] = "debug"
    sentence: ClassVar[str] = "job snoozed"

    seconds: float
    delay: float
    reason: str | None = None


class JobReleased(AttemptEvent, frozen=True, kw_only=True):
    """A job was handed back uncharged, for the `reason` named: refused, too late, waiting for a pool."""

    level: ClassVar[Level] = "debug"
    sentence: ClassVar[str] = "job handed back"

    seconds: float
    reason: str


class StartMissed(AttemptEvent, frozen=True, kw_only=True):
    """A job was handed back uncharged: it came `late` seconds too late to start within half of a jitter."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "job handed back: too late to start"
    floods: ClassVar[bool] = True

    late: float


class BatchSplit(AttemptEvent, frozen=True, kw_only=True):
    """A call for `jobs` jobs failed, maybe of one of them: they come back, uncharged, in `parts` calls."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "batch split"
    floods: ClassVar[bool] = True

    jobs: int
    parts: int
    error: str
    message: str


class StepKept(AttemptEvent, frozen=True, kw_only=True):
    """The store keeps the result of a step, `size` bytes of JSON; `arguments` is a digest of them."""

    level: ClassVar[Level] = "debug"
    sentence: ClassVar[str] = "step kept"

    step: str
    arguments: str
    paid: bool
    size: int


class StepReplayed(AttemptEvent, frozen=True, kw_only=True):
    """A step was not called: its result was there."""

    level: ClassVar[Level] = "debug"
    sentence: ClassVar[str] = "step replayed"

    step: str
    arguments: str
    paid: bool


class StepUnknown(AttemptEvent, frozen=True, kw_only=True):
    """A paid step was begun before and nobody knows how it ended: it is paid again, or parks its job."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "step of unknown outcome"

    step: str
    arguments: str
    on_unknown: str


class JobCrashed(AttemptEvent, frozen=True, kw_only=True):
    """The process a job ran alone in died under it; the job may run again."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "job crashed"

    seconds: float
    crashes: int
    error: str
    message: str


class JobLost(AttemptEvent, frozen=True, kw_only=True):
    """An attempt is stopped because its claim is gone: the job was cancelled, or its lease was lost."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "attempt stopped, its claim is gone"
    floods: ClassVar[bool] = True

    seconds: float


class OutcomeRefused(AttemptEvent, frozen=True, kw_only=True):
    """The store refused an outcome: `stale`, the job has another owner by now, or `gone`, it was deleted."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "outcome refused"
    floods: ClassVar[bool] = True

    outcome: str
    answer: str


class JobReclaimed(AttemptEvent, frozen=True, kw_only=True):
    """A job was taken back from a silent or dead `worker` and may run again."""

    level: ClassVar[Level] = "debug"
    sentence: ClassVar[str] = "job reclaimed"

    crashes: int
    error: str
    message: str


class TaskUnknown(WorkerEvent, frozen=True, kw_only=True):
    """A worker handed back a job whose task it does not know; once per worker and task."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "unknown task handed back"

    task: str
    queue: str
    known: tuple[str, ...]


class LeaseExpired(AttemptEvent, frozen=True, kw_only=True):
    """A worker did not start a job whose lease had ended `late` seconds ago; the job goes back uncharged."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "lease over before the start"

    late: float


class ChildNotReady(AttemptEvent, frozen=True, kw_only=True):
    """A child process failed before its job began, in the lifespan for example; the job waits, uncharged."""

    level: ClassVar[Level] = "error"
    sentence: ClassVar[str] = "child process not ready"

    problem: str
    again_in: float


class SuspectNotIsolated(WorkerEvent, frozen=True, kw_only=True):
    """No child process can run a job with a crash on record: the worker does. Once per task and problem."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "suspect runs in the worker"

    task: str
    problem: str


class LifespanSkipped(WorkerEvent, frozen=True, kw_only=True):
    """The lifespan fails in child processes: an isolated task runs without it. Once per task and problem."""

    level: ClassVar[Level] = "error"
    sentence: ClassVar[str] = "isolated task runs without the lifespan"

    task: str
    problem: str


class SlotStuck(AttemptEvent, frozen=True, kw_only=True):
    """An attempt was told to stop and its code goes on: its slot is taken until it ends."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "slot stuck"

    seconds: float
