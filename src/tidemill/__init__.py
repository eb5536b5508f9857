"""Tidemill runs background jobs against rate-limited, paid APIs."""

from __future__ import annotations

from tidemill.app import Tidemill
from tidemill.client.handle import JobHandle
from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.core.filters import Filter
from tidemill.core.job import Error, Job
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique
from tidemill.errors import (
    ConfigurationError,
    EnqueueError,
    GiveUp,
    InvalidJob,
    InvalidPayload,
    JobCancelled,
    JobError,
    JobFailed,
    JobNotFound,
    PayloadTooLarge,
    QueueFull,
    ResultTimeout,
    ResultUnreadable,
    RetryAfter,
    SchemaMismatch,
    SnoozeFor,
    Steer,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TidemillError,
)
from tidemill.tasks.context import Context

__all__ = [
    "ConfigurationError",
    "Context",
    "EnqueueError",
    "Error",
    "Filter",
    "GiveUp",
    "InvalidJob",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobHandle",
    "JobNotFound",
    "JobRequest",
    "PayloadTooLarge",
    "QueueFull",
    "QueueSettings",
    "ResultTimeout",
    "ResultUnreadable",
    "Retention",
    "Retry",
    "RetryAfter",
    "SchemaMismatch",
    "SnoozeFor",
    "State",
    "Steer",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "Task",
    "Tidemill",
    "TidemillError",
    "Unique",
]
