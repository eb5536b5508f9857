"""Events of workers, the store, alerts and pools."""

from __future__ import annotations

from typing import ClassVar

from tidemill.telemetry.event_base import AttemptEvent, Event, LogLevel, PoolEvent, WorkerEvent


class WorkerStarted(WorkerEvent, frozen=True, kw_only=True):
    """A worker is about to claim its first jobs. `queues` maps its queues to their weights, and `store` is
    the store's location without secrets."""

    sentence: ClassVar[str] = "worker started"

    queues: dict[str, int]
    concurrency: int
    store: str | None = None


class WorkerStopped(WorkerEvent, frozen=True, kw_only=True):
    """A worker ended. The numbers from `done` to `lost` count the attempts of this worker. A worker that
    stopped because it was idle also gives the jobs left in its queues (`scheduled`, `ready`) and its paused
    queues (`paused`)."""

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
    """A worker process ended unexpectedly. Its supervisor reclaimed `reclaimed` jobs."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "worker died"

    exit_code: int
    reclaimed: int


class WorkerUnresponsive(WorkerEvent, frozen=True, kw_only=True):
    """Jobs were reclaimed from a worker that sent no heartbeat. `jobs` is their number, `job` one of their
    ids. `worker` is empty if the worker is not known."""

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
    """A program started with a setting that has no effect. `why` gives the reason and says what to do."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "setting ignored"

    setting: str
    why: str


class WorkerDraining(WorkerEvent, frozen=True, kw_only=True):
    """A worker was asked to stop. Its `running` jobs may finish within `grace` seconds."""

    sentence: ClassVar[str] = "worker draining"

    running: int
    grace: float


class GraceExpired(WorkerEvent, frozen=True, kw_only=True):
    """The grace period of a stopping worker is over. Its `running` jobs are cancelled and released."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "grace period expired, releasing unfinished jobs"

    running: int


class OutcomesUndelivered(WorkerEvent, frozen=True, kw_only=True):
    """A worker ended before the store recorded `outcomes` outcomes. The jobs run again when their leases have
    expired."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "stopping with undelivered outcomes"

    outcomes: int


class StoreLost(WorkerEvent, frozen=True, kw_only=True):
    """The store does not answer. Running jobs continue, and `outcomes` outcomes wait in the worker."""

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
    """A heartbeat failed. It is repeated every second, and the event is emitted again only after a heartbeat
    has succeeded."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "heartbeat failed"

    error: str
    message: str


class HeartbeatCrashed(WorkerEvent, frozen=True, kw_only=True):
    """The heartbeat raised an unexpected error and is restarted. This is a bug; please report it."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "heartbeat crashed, restarting"

    error: str
    message: str
    traceback: str


class ClockSkewDetected(WorkerEvent, frozen=True, kw_only=True):
    """The clock of the store and the clock of the worker advanced by different amounts; the difference is
    `seconds`. No jobs are reclaimed for `pause` seconds."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "clock skew detected"

    seconds: float
    pause: float


class MaintenanceFailed(WorkerEvent, frozen=True, kw_only=True):
    """A maintenance operation failed, because the store refused it or did not answer. The event is emitted
    again only after the operation has succeeded."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "maintenance failed"

    operation: str
    error: str
    message: str


class MaintenanceCrashed(WorkerEvent, frozen=True, kw_only=True):
    """A maintenance operation raised an unexpected error and is retried. This is a bug; please report it."""

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
    """A queue had more finished jobs than its retention allows. So in the last hour `jobs` of them were
    deleted before the age at which the retention deletes them."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "finished jobs dropped by count before their retention ended"

    queue: str
    jobs: int


class ListenerFailed(Event, frozen=True, kw_only=True):
    """A listener raised an error while it handled the event `about`. Emitted once per listener."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "listener failed; its further errors are not logged"

    listener: str
    about: str
    error: str
    message: str
    traceback: str


class AlertSent(WorkerEvent, frozen=True, kw_only=True):
    """A worker sent an alert through `channel`: the store is unavailable, or available again. `title` is the
    title of the alert. All other alerts are sent by jobs and do not emit this event."""

    sentence: ClassVar[str] = "alert sent"

    channel: str
    title: str


class AlertSendFailed(WorkerEvent, frozen=True, kw_only=True):
    """A worker could not send an alert through `channel` to report that the store is unavailable or available
    again. It will try again."""

    level: ClassVar[LogLevel] = "error"
    sentence: ClassVar[str] = "alert not sent"

    channel: str
    error: str
    message: str


class PoolClosed(PoolEvent, frozen=True, kw_only=True):
    """A refusal by the provider closed a pool until the wall time `until`, or without an end if `until` is
    None. `times` is how many refusals came in a row."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "pool closed"

    reason: str
    unit: str | None
    until: float | None
    times: int
    text: str


class PoolProbed(PoolEvent, frozen=True, kw_only=True):
    """The call of `job` probes a closed pool. Other calls follow if it succeeds."""

    sentence: ClassVar[str] = "pool probed"

    reason: str


class PoolOpened(PoolEvent, frozen=True, kw_only=True):
    """A pool opened that was closed since the wall time `since`. `ramp` is True if it opens slowly."""

    sentence: ClassVar[str] = "pool opened"

    reason: str
    since: float
    ramp: bool


class PoolLimitLowered(PoolEvent, frozen=True, kw_only=True):
    """The provider allows less than the pool declares. `amounts` maps the names of limits to the lower
    amounts that apply from now on."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "pool limit lowered"

    amounts: dict[str, float]


class FeedbackProblem(AttemptEvent, frozen=True, kw_only=True):
    """A handler reported usage that cannot be counted, or the application's function that classifies provider
    answers failed."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "feedback problem"
    is_log_throttled: ClassVar[bool] = True

    problem: str


class UnreservedCall(AttemptEvent, frozen=True, kw_only=True):
    """A handler made more calls than its job reserved. The pool counts them. Emitted once per pool and
    worker."""

    level: ClassVar[LogLevel] = "warning"
    sentence: ClassVar[str] = "more calls than reserved"

    pool: str
    key: str | None
