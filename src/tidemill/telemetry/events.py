"""The catalogue: every event there is.

    Event
    ├── JobEvent                     job, task, queue, trace
    │   └── AttemptEvent             … and attempt, worker
    └── WorkerEvent                  worker

Listen to one with `app.on(JobFailed)`, to a family by its base. Fields mean the same everywhere:
durations are seconds, `error` is an exception's type and `message` its text, `seconds` how long
something took or has run.
"""

from __future__ import annotations

from tidemill.telemetry.base import AttemptEvent, Event, JobEvent, WorkerEvent
from tidemill.telemetry.job_events import (
    BatchSplit,
    JobCrashed,
    JobDone,
    JobEnqueued,
    JobFailed,
    JobLost,
    JobReclaimed,
    JobReleased,
    JobRetrying,
    JobSnoozed,
    JobStarted,
    OutcomeRefused,
    PayloadLarge,
    PoolClosed,
    SlotStuck,
    TaskUnknown,
)
from tidemill.telemetry.worker_events import (
    ChoreBroke,
    ChoreFailed,
    ClocksParted,
    Draining,
    GraceOver,
    HeartbeatBroke,
    HeartbeatFailed,
    ListenerFailed,
    OutcomesUntold,
    QueuesUnknown,
    StoreBack,
    StoreLost,
    WorkerDied,
    WorkerNotStarted,
    WorkerStarted,
    WorkerStopped,
)

CATALOGUE: tuple[type[Event], ...] = (
    JobEnqueued,
    PayloadLarge,
    JobStarted,
    JobDone,
    JobRetrying,
    JobFailed,
    JobSnoozed,
    JobReleased,
    BatchSplit,
    PoolClosed,
    JobCrashed,
    JobLost,
    OutcomeRefused,
    JobReclaimed,
    TaskUnknown,
    SlotStuck,
    WorkerStarted,
    WorkerStopped,
    WorkerDied,
    WorkerNotStarted,
    QueuesUnknown,
    Draining,
    GraceOver,
    OutcomesUntold,
    StoreLost,
    StoreBack,
    HeartbeatFailed,
    HeartbeatBroke,
    ClocksParted,
    ChoreFailed,
    ChoreBroke,
    ListenerFailed,
)

__all__ = [
    "CATALOGUE",
    "AttemptEvent",
    "BatchSplit",
    "ChoreBroke",
    "ChoreFailed",
    "ClocksParted",
    "Draining",
    "Event",
    "GraceOver",
    "HeartbeatBroke",
    "HeartbeatFailed",
    "JobCrashed",
    "JobDone",
    "JobEnqueued",
    "JobEvent",
    "JobFailed",
    "JobLost",
    "JobReclaimed",
    "JobReleased",
    "JobRetrying",
    "JobSnoozed",
    "JobStarted",
    "ListenerFailed",
    "OutcomeRefused",
    "OutcomesUntold",
    "PayloadLarge",
    "PoolClosed",
    "QueuesUnknown",
    "SlotStuck",
    "StoreBack",
    "StoreLost",
    "TaskUnknown",
    "WorkerDied",
    "WorkerEvent",
    "WorkerNotStarted",
    "WorkerStarted",
    "WorkerStopped",
]
