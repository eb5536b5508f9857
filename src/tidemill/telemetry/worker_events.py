"""Events of workers, the store, alerts and pools."""

from __future__ import annotations

from typing import ClassVar

from tidemill.telemetry.event_base import AttemptEvent, Event, LogLevel, PoolEvent, WorkerEvent


class WorkerStarted(WorkerEvent, frozen=True, kw_only=True):
    """A worker is about to claim its first jobs from `store`; `queues` has the weights of its queues."""

    sentence: ClassVar[str] = "worker started"

    queues: dict[str, int]
    concurrency: int
    store: str | None = None


class WorkerStopped(WorkerEvent, frozen=True, kw_only=True):
    """A worker ended. Fields count its jobs; `scheduled`, `ready`, `paused` are set only for `until_idle`."""

    sentence: ClassVar[str] = "worker stopped"

    done: int
    failed: int
    retried: int
    snoozed: int
    crashed: int
    released: int
    lost: int
    scheduled: int | None = None
    ready: int | None = None
    paused: tuple[str, ...] | None = None


class WorkerDied(WorkerEvent, frozen=True, kw_only=True):
    """A worker process ended unexpectedly; its supervisor reclaimed `reclaimed` jobs."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "worker died"

    exit_code: int
    reclaimed: int


class WorkerUnresponsive(WorkerEvent, frozen=True, kw_only=True):
    """`jobs` jobs, such as `job`, were reclaimed from a silent worker. `worker` is "" if it is not known."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "worker unresponsive, its jobs were reclaimed"

    jobs: int
    job: str


class WorkerStartFailed(WorkerEvent, frozen=True, kw_only=True):
    """A supervisor could not start a worker process and will try again."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "worker failed to start"

    error: str
    message: str


class UnknownQueues(Event, frozen=True, kw_only=True):
    """A worker serves queues that its application neither declares nor uses in a task."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "unknown queues"

    unknown: tuple[str, ...]
    known: tuple[str, ...]


class SettingIgnored(Event, frozen=True, kw_only=True):
    """A program starts and one `setting` has no effect; `why` says what to do."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "setting ignored"

    setting: str
    why: str


class WorkerDraining(WorkerEvent, frozen=True, kw_only=True):
    """A worker received a stop request; `running` jobs may finish within `grace` seconds."""

    sentence: ClassVar[str] = "worker draining"

    running: int
    grace: float


class GraceExpired(WorkerEvent, frozen=True, kw_only=True):
    """The grace period is over; `running` jobs are stopped and released."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "grace period expired, releasing unfinished jobs"

    running: int


class OutcomesUndelivered(WorkerEvent, frozen=True, kw_only=True):
    """A worker ended before the store recorded `outcomes` outcomes; those jobs run again after the lease."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "stopping with undelivered outcomes"

    outcomes: int


class StoreLost(WorkerEvent, frozen=True, kw_only=True):
    """The store does not answer. Running jobs continue; `outcomes` outcomes wait in the worker."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "store unavailable"

    error: str
    message: str
    outcomes: int


class StoreRecovered(WorkerEvent, frozen=True, kw_only=True):
    """The store answers again, after `seconds` without an answer."""

    sentence: ClassVar[str] = "store available again"

    seconds: float


class HeartbeatFailed(WorkerEvent, frozen=True, kw_only=True):
    """A heartbeat failed and is repeated every second; reported once until one succeeds."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "heartbeat failed"

    error: str
    message: str


class HeartbeatCrashed(WorkerEvent, frozen=True, kw_only=True):
    """The heartbeat raised an unexpected error and is restarted; this is a bug, please report it."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "heartbeat crashed, restarting"

    error: str
    message: str
    traceback: str


class ClockSkewDetected(WorkerEvent, frozen=True, kw_only=True):
    """The clocks of store and worker moved `seconds` apart; nothing is reclaimed for `pause` seconds."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "clock skew detected"

    seconds: float
    pause: float


class MaintenanceFailed(WorkerEvent, frozen=True, kw_only=True):
    """The store refused or did not answer a maintenance operation; reported once until it succeeds."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "maintenance failed"

    operation: str
    error: str
    message: str


class MaintenanceCrashed(WorkerEvent, frozen=True, kw_only=True):
    """A maintenance operation raised an unexpected error and is retried; this is a bug, please report it."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "maintenance crashed"

    operation: str
    error: str
    message: str
    traceback: str


class PeriodicFailed(WorkerEvent, frozen=True, kw_only=True):
    """A periodic function of the application raised an error; the same error in a row is reported once."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "periodic function failed"

    name: str
    error: str
    message: str
    traceback: str


class JobsDroppedEarly(WorkerEvent, frozen=True, kw_only=True):
    """In the last hour a queue's limit by count deleted `jobs` finished jobs before their age limit."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "finished jobs dropped by count before their retention ended"

    queue: str
    jobs: int


class ListenerFailed(Event, frozen=True, kw_only=True):
    """A listener raised an error while it handled the event `about`; reported once per listener."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "listener failed; its further errors are not logged"

    listener: str
    about: str
    error: str
    message: str
    traceback: str


class AlertSent(WorkerEvent, frozen=True, kw_only=True):
    """A worker sent an alert about a lost or recovered store through `channel`, without a job."""

    sentence: ClassVar[str] = "alert sent"

    channel: str
    title: str


class AlertSendFailed(WorkerEvent, frozen=True, kw_only=True):
    """An alert about a lost or recovered store could not be sent through `channel`; it is retried."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "alert not sent"

    channel: str
    error: str
    message: str


class PoolClosed(PoolEvent, frozen=True, kw_only=True):
    """A refusal, number `times` in a row, closed a pool until the wall time `until` (None: no end)."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "pool closed"

    reason: str
    unit: str | None
    until: float | None
    times: int
    text: str


class PoolProbed(PoolEvent, frozen=True, kw_only=True):
    """The call of `job` probes a closed pool alone; other calls follow if this call succeeds."""

    sentence: ClassVar[str] = "pool probed"

    reason: str


class PoolOpened(PoolEvent, frozen=True, kw_only=True):
    """A pool that was closed since `since` (wall time) opened; `ramp`: it opens slowly."""

    sentence: ClassVar[str] = "pool opened"

    reason: str
    since: float
    ramp: bool


class PoolLimitLowered(PoolEvent, frozen=True, kw_only=True):
    """The provider allows less than declared. `amounts`: the lower limits from now on, by limit name."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "pool limit lowered"

    amounts: dict[str, float]


class FeedbackProblem(AttemptEvent, frozen=True, kw_only=True):
    """A handler reported usage that cannot be counted, or a function that classifies answers failed."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "feedback problem"
    is_log_throttled: ClassVar[bool] = True

    problem: str


class UnreservedCall(AttemptEvent, frozen=True, kw_only=True):
    """A handler made more calls than its job reserved; the pool counts them. Once per pool and worker."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "more calls than reserved"

    pool: str
    key: str | None
