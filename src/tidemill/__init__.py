"""Tidemill runs background jobs against rate-limited, paid APIs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tidemill.app import Tidemill
from tidemill.client.job_handle import JobHandle
from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.contract.reader import JobPage
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error, Job
from tidemill.core.operator_changes import (
    ArchiveJobs,
    CancelJobs,
    DeleteJobs,
    OperatorChange,
    ReprioritiseJobs,
    RetryJobs,
    RunJobsNow,
)
from tidemill.core.overrides import Override
from tidemill.core.queues import QueueChanges, QueueSettings, Retention
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.errors import (
    AnswerUnavailable,
    AttemptExit,
    ClaimLost,
    ConfigurationError,
    DependencyUnavailable,
    EnqueueError,
    FlowCancelled,
    FlowError,
    FlowFailed,
    FlowNotFound,
    GiveUp,
    InvalidJob,
    InvalidPayload,
    JobCancelled,
    JobError,
    JobFailed,
    JobNotFound,
    PayloadTooLarge,
    PoolNotFound,
    QueueFull,
    QueueNotFound,
    ResultTimeout,
    ResultUnreadable,
    RetryAfter,
    ScheduleNotFound,
    SchemaMismatch,
    SignatureInvalid,
    SnoozeFor,
    StepUnusable,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TidemillError,
    TokenNotFound,
    UnknownOutcome,
    WaitRefused,
    WebhookNotFound,
)
from tidemill.tasks.context import Context
from tidemill.telemetry.current_attempt import CurrentAttempt, current_attempt

if TYPE_CHECKING:
    from tidemill.client.flow_handle import FlowHandle
    from tidemill.client.flow_steps import FlowStep, unmapped
    from tidemill.client.flows import Flow
    from tidemill.client.schedules import Schedules
    from tidemill.core.batching import ItemChunk, split_into_chunks
    from tidemill.core.calendars import Day, Month, TimeOfDay, Week
    from tidemill.core.feedback import Reason, Refusal
    from tidemill.core.flow_progress import FlowState, StepState
    from tidemill.core.jobs import FlowPosition
    from tidemill.core.limits import Limit
    from tidemill.core.redaction import Secret
    from tidemill.flows.results import StepFailure
    from tidemill.flows.views import FlowView, StepView
    from tidemill.inspect.explanation import Explanation
    from tidemill.inspect.flows import FlowPage
    from tidemill.inspect.inspector import Inspector
    from tidemill.inspect.plan import Plan
    from tidemill.inspect.pools import PoolStatus
    from tidemill.inspect.views import BulkResult, JobView, Overview, QueueView
    from tidemill.metrics.dependencies import DependencyStatus
    from tidemill.metrics.rollup import QueueTotal
    from tidemill.notifications.address_policy import AllowedAddresses
    from tidemill.notifications.alert_rules import AlertRule
    from tidemill.notifications.alerts import Alerts, AlertView
    from tidemill.notifications.webhook_definitions import FinishedJob, NewWebhook
    from tidemill.notifications.webhooks import Webhooks, WebhookView
    from tidemill.schedules.schedule import ScheduleState
    from tidemill.schedules.views import SchedulePage, ScheduleView
    from tidemill.tasks.batches import FailedItem
    from tidemill.tasks.periodic import PeriodicFunction
    from tidemill.tasks.pools import Pool
else:
    _LAZY = {
        "AlertRule": "notifications.alert_rules",
        "AlertView": "notifications.alerts",
        "Alerts": "notifications.alerts",
        "AllowedAddresses": "notifications.address_policy",
        "BulkResult": "inspect.views",
        "Day": "core.calendars",
        "DependencyStatus": "metrics.dependencies",
        "Explanation": "inspect.explanation",
        "FailedItem": "tasks.batches",
        "FinishedJob": "notifications.webhook_definitions",
        "Flow": "client.flows",
        "FlowHandle": "client.flow_handle",
        "FlowPage": "inspect.flows",
        "FlowPosition": "core.jobs",
        "FlowState": "core.flow_progress",
        "FlowStep": "client.flow_steps",
        "FlowView": "flows.views",
        "Inspector": "inspect.inspector",
        "ItemChunk": "core.batching",
        "JobView": "inspect.views",
        "Limit": "core.limits",
        "Month": "core.calendars",
        "NewWebhook": "notifications.webhook_definitions",
        "Overview": "inspect.views",
        "PeriodicFunction": "tasks.periodic",
        "Plan": "inspect.plan",
        "Pool": "tasks.pools",
        "PoolStatus": "inspect.pools",
        "QueueTotal": "metrics.rollup",
        "QueueView": "inspect.views",
        "Reason": "core.feedback",
        "Refusal": "core.feedback",
        "SchedulePage": "schedules.views",
        "ScheduleState": "schedules.schedule",
        "ScheduleView": "schedules.views",
        "Schedules": "client.schedules",
        "Secret": "core.redaction",
        "StepFailure": "flows.results",
        "StepState": "core.flow_progress",
        "StepView": "flows.views",
        "TimeOfDay": "core.calendars",
        "WebhookView": "notifications.webhooks",
        "Webhooks": "notifications.webhooks",
        "Week": "core.calendars",
        "split_into_chunks": "core.batching",
        "unmapped": "client.flow_steps",
    }

    def __getattr__(name):  # noqa: ANN001, ANN202 - hidden from type checkers, or every name would exist for them
        """Imports a public name at its first use. This applies to the names of inspection, pools and flows. A
        program that only enqueues jobs starts a third faster without these imports."""
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"tidemill.{_LAZY[name]}"), name)
        return value


__all__ = [
    "AlertRule",
    "AlertView",
    "Alerts",
    "AllowedAddresses",
    "AnswerUnavailable",
    "ArchiveJobs",
    "AttemptExit",
    "BulkResult",
    "CancelJobs",
    "ClaimLost",
    "ConfigurationError",
    "Context",
    "CurrentAttempt",
    "Day",
    "DeleteJobs",
    "DependencyStatus",
    "DependencyUnavailable",
    "EnqueueError",
    "Error",
    "Explanation",
    "FailedItem",
    "Filter",
    "FinishedJob",
    "Flow",
    "FlowCancelled",
    "FlowError",
    "FlowFailed",
    "FlowHandle",
    "FlowNotFound",
    "FlowPage",
    "FlowPosition",
    "FlowState",
    "FlowStep",
    "FlowView",
    "GiveUp",
    "Inspector",
    "InvalidJob",
    "InvalidPayload",
    "ItemChunk",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobHandle",
    "JobNotFound",
    "JobPage",
    "JobRequest",
    "JobView",
    "Limit",
    "Month",
    "NewWebhook",
    "OperatorChange",
    "Override",
    "Overview",
    "PayloadTooLarge",
    "PeriodicFunction",
    "Plan",
    "Pool",
    "PoolNotFound",
    "PoolStatus",
    "QueueChanges",
    "QueueFull",
    "QueueNotFound",
    "QueueSettings",
    "QueueTotal",
    "QueueView",
    "Reason",
    "Refusal",
    "ReprioritiseJobs",
    "ResultTimeout",
    "ResultUnreadable",
    "Retention",
    "Retry",
    "RetryAfter",
    "RetryJobs",
    "RunJobsNow",
    "ScheduleNotFound",
    "SchedulePage",
    "ScheduleState",
    "ScheduleView",
    "Schedules",
    "SchemaMismatch",
    "Secret",
    "SignatureInvalid",
    "SnoozeFor",
    "State",
    "StepFailure",
    "StepState",
    "StepUnusable",
    "StepView",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "Task",
    "Tidemill",
    "TidemillError",
    "TimeOfDay",
    "TokenNotFound",
    "Unique",
    "UnknownOutcome",
    "WaitRefused",
    "WebhookNotFound",
    "WebhookView",
    "Webhooks",
    "Week",
    "current_attempt",
    "split_into_chunks",
    "unmapped",
]
