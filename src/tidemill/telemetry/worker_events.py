"""What happens to workers, and between them and the store."""

from __future__ import annotations

from typing import ClassVar

from tidemill.telemetry.base import Event, Level, WorkerEvent


class WorkerStarted(WorkerEvent, frozen=True, kw_only=True):
    """A worker is about to ask `store` for its first jobs; `queues` has their weights."""

    sentence: ClassVar[str] = "worker started"

    queues: dict[str, int]
    concurrency: int
    store: str | None = None


class WorkerStopped(WorkerEvent, frozen=True, kw_only=True):
    """A worker has ended, with what it did; `until_idle` tells what it left, and which queues are paused."""

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
    """A supervisor saw a worker process end that should not have; `reclaimed` jobs were in its hands."""

    level: ClassVar[Level] = "error"
    sentence: ClassVar[str] = "worker died"

    exit_code: int
    reclaimed: int


class WorkerSilent(WorkerEvent, frozen=True, kw_only=True):
    """So many `jobs`, such as `job`, were taken back from a silent `worker`; no name: others have them."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "worker fell silent, its jobs were taken back"

    jobs: int
    job: str


class WorkerNotStarted(WorkerEvent, frozen=True, kw_only=True):
    """A supervisor could not start a worker process and will try again."""

    level: ClassVar[Level] = "error"
    sentence: ClassVar[str] = "worker could not be started"

    error: str
    message: str


class QueuesUnknown(Event, frozen=True, kw_only=True):
    """A worker is to serve queues its application neither declares nor has a task on."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "queues that the application neither declares nor has a task on"

    unknown: tuple[str, ...]
    known: tuple[str, ...]


class SettingIgnored(Event, frozen=True, kw_only=True):
    """Something starts, and a `setting` that somebody made has no effect; `why` says what to do."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "setting ignored"

    setting: str
    why: str


class Draining(WorkerEvent, frozen=True, kw_only=True):
    """A worker was told to stop: `running` jobs may finish within `grace` seconds."""

    sentence: ClassVar[str] = "draining"

    running: int
    grace: float


class GraceOver(WorkerEvent, frozen=True, kw_only=True):
    """The grace time is over: `running` jobs are stopped and handed back."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "handing back unfinished jobs"

    running: int


class OutcomesUntold(WorkerEvent, frozen=True, kw_only=True):
    """A worker ends without the store having heard of `outcomes`: those jobs run again after their lease."""

    level: ClassVar[Level] = "error"
    sentence: ClassVar[str] = "stopping without telling the store"

    outcomes: int


class StoreLost(WorkerEvent, frozen=True, kw_only=True):
    """The store does not answer: running jobs go on, and `outcomes` are kept until it does."""

    level: ClassVar[Level] = "error"
    sentence: ClassVar[str] = "store unavailable"

    error: str
    message: str
    outcomes: int


class StoreBack(WorkerEvent, frozen=True, kw_only=True):
    """The store answers again, after `seconds`."""

    sentence: ClassVar[str] = "store available again"

    seconds: float


class HeartbeatFailed(WorkerEvent, frozen=True, kw_only=True):
    """A heartbeat did not get through; it is repeated every second, and told once until one does."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "heartbeat failed"

    error: str
    message: str


class HeartbeatBroke(WorkerEvent, frozen=True, kw_only=True):
    """The heartbeat ended by an error that is no outage, and is started again: a bug, please report it."""

    level: ClassVar[Level] = "error"
    sentence: ClassVar[str] = "heartbeat broke and is started again"

    error: str
    message: str
    traceback: str


class ClocksParted(WorkerEvent, frozen=True, kw_only=True):
    """The store's clock and the worker's have parted: nothing is reclaimed for `pause` seconds."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "clocks parted"

    seconds: float
    pause: float


class ChoreFailed(WorkerEvent, frozen=True, kw_only=True):
    """The store refused or did not answer a chore; it is tried again, and told once until it works."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "chore failed"

    chore: str
    error: str
    message: str


class ChoreBroke(WorkerEvent, frozen=True, kw_only=True):
    """A chore ended by an error that is no outage, and is tried again: a bug, please report it."""

    level: ClassVar[Level] = "error"
    sentence: ClassVar[str] = "chore broke"

    chore: str
    error: str
    message: str
    traceback: str


class JobsDroppedEarly(WorkerEvent, frozen=True, kw_only=True):
    """`jobs` of the last hour were dropped by count before their age was over; once an hour and queue."""

    level: ClassVar[Level] = "warning"
    sentence: ClassVar[str] = "ended jobs dropped by count before their age was over"

    queue: str
    jobs: int


class ListenerFailed(Event, frozen=True, kw_only=True):
    """A listener raised while it was told of the event `about`; once per listener."""

    level: ClassVar[Level] = "error"
    sentence: ClassVar[str] = "listener failed; what else it raises is not told"

    listener: str
    about: str
    error: str
    message: str
    traceback: str


class AlertSent(WorkerEvent, frozen=True, kw_only=True):
    """That the store is lost, or back, was told to people by `channel`: directly, not by a job."""

    sentence: ClassVar[str] = "alert sent"

    channel: str
    title: str


class AlertNotSent(WorkerEvent, frozen=True, kw_only=True):
    """That the store is lost, or back, could not be told by `channel`; it is tried again."""

    level: ClassVar[Level] = "error"
    sentence: ClassVar[str] = "alert not sent"

    channel: str
    error: str
    message: str
