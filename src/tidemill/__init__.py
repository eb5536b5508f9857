"""Tidemill runs background jobs against rate-limited, paid APIs."""

from __future__ import annotations

from tidemill.app import Tidemill
from tidemill.client.handle import JobHandle
from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.contract.reader import Page
from tidemill.core.changes import Archive, Cancel, Change, Delete, Reprioritise, RetryNow, RunNow
from tidemill.core.filters import Filter
from tidemill.core.job import Error, Job
from tidemill.core.queues import Override, QueueChanges, QueueSettings, Retention
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
    QueueNotFound,
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
from tidemill.inspect.explanation import Explanation
from tidemill.inspect.inspector import Inspector
from tidemill.inspect.views import Changed, JobView, Overview, QueueView
from tidemill.tasks.context import Context

__all__ = [
    "Archive",
    "Cancel",
    "Change",
    "Changed",
    "ConfigurationError",
    "Context",
    "Delete",
    "EnqueueError",
    "Error",
    "Explanation",
    "Filter",
    "GiveUp",
    "Inspector",
    "InvalidJob",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobHandle",
    "JobNotFound",
    "JobRequest",
    "JobView",
    "Override",
    "Overview",
    "Page",
    "PayloadTooLarge",
    "QueueChanges",
    "QueueFull",
    "QueueNotFound",
    "QueueSettings",
    "QueueView",
    "Reprioritise",
    "ResultTimeout",
    "ResultUnreadable",
    "Retention",
    "Retry",
    "RetryAfter",
    "RetryNow",
    "RunNow",
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
