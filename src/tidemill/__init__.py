"""Tidemill runs background jobs against rate-limited, paid APIs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
    ClaimLost,
    ConfigurationError,
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
    Steer,
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
from tidemill.telemetry.current import CurrentAttempt, current

if TYPE_CHECKING:
    from tidemill.client.flow_handle import FlowHandle
    from tidemill.client.flow_steps import Step, whole
    from tidemill.client.flows import Flow
    from tidemill.client.schedules import Schedules
    from tidemill.core.calendars import Day, Month, Week
    from tidemill.core.daytime import TimeOfDay
    from tidemill.core.flow_jobs import InFlow
    from tidemill.core.graph_state import FlowState, StepState
    from tidemill.core.limits import Limit
    from tidemill.core.refusals import Reason, Refusal
    from tidemill.core.secrecy import Secret
    from tidemill.core.splitting import Batch, split
    from tidemill.flows.failure import Failure
    from tidemill.flows.views import FlowView, StepView
    from tidemill.inspect.explanation import Explanation
    from tidemill.inspect.flows import FlowPage
    from tidemill.inspect.inspector import Inspector
    from tidemill.inspect.plan import Plan
    from tidemill.inspect.pools import PoolStatus
    from tidemill.inspect.views import Changed, JobView, Overview, QueueView
    from tidemill.schedules.schedule import ScheduleState
    from tidemill.schedules.views import SchedulePage, ScheduleView
    from tidemill.tallies.totals import QueueTotal
    from tidemill.tasks.batches import Failed
    from tidemill.tasks.pools import Pool
    from tidemill.telling.alerts.alerts import Alerts, AlertView
    from tidemill.telling.alerts.rule import Rule
    from tidemill.telling.bodies import Ended
    from tidemill.telling.webhook import NewWebhook
    from tidemill.telling.webhooks import Webhooks, WebhookView
else:
    _LAZY = {
        "AlertView": "telling.alerts.alerts",
        "Alerts": "telling.alerts.alerts",
        "Batch": "core.splitting",
        "Changed": "inspect.views",
        "Day": "core.calendars",
        "Ended": "telling.bodies",
        "Explanation": "inspect.explanation",
        "Failed": "tasks.batches",
        "Failure": "flows.failure",
        "Flow": "client.flows",
        "FlowHandle": "client.flow_handle",
        "FlowPage": "inspect.flows",
        "FlowState": "core.graph_state",
        "FlowView": "flows.views",
        "InFlow": "core.flow_jobs",
        "Inspector": "inspect.inspector",
        "JobView": "inspect.views",
        "Limit": "core.limits",
        "Month": "core.calendars",
        "NewWebhook": "telling.webhook",
        "Overview": "inspect.views",
        "Plan": "inspect.plan",
        "Pool": "tasks.pools",
        "PoolStatus": "inspect.pools",
        "QueueTotal": "tallies.totals",
        "QueueView": "inspect.views",
        "Reason": "core.refusals",
        "Refusal": "core.refusals",
        "Rule": "telling.alerts.rule",
        "SchedulePage": "schedules.views",
        "ScheduleState": "schedules.schedule",
        "ScheduleView": "schedules.views",
        "Schedules": "client.schedules",
        "Secret": "core.secrecy",
        "Step": "client.flow_steps",
        "StepState": "core.graph_state",
        "StepView": "flows.views",
        "TimeOfDay": "core.daytime",
        "WebhookView": "telling.webhooks",
        "Webhooks": "telling.webhooks",
        "Week": "core.calendars",
        "split": "core.splitting",
        "whole": "client.flow_steps",
    }

    def __getattr__(name):  # noqa: ANN001, ANN202 - hidden from type checkers, or every name would be one
        """What looks at jobs, and pools, are imported when they are asked for: a program that only sends
        jobs starts a third faster without."""
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"tidemill.{_LAZY[name]}"), name)
        return value


__all__ = [
    "AlertView",
    "Alerts",
    "Archive",
    "Batch",
    "Cancel",
    "Change",
    "Changed",
    "ClaimLost",
    "ConfigurationError",
    "Context",
    "CurrentAttempt",
    "Day",
    "Delete",
    "Ended",
    "EnqueueError",
    "Error",
    "Explanation",
    "Failed",
    "Failure",
    "Filter",
    "Flow",
    "FlowCancelled",
    "FlowError",
    "FlowFailed",
    "FlowHandle",
    "FlowNotFound",
    "FlowPage",
    "FlowState",
    "FlowView",
    "GiveUp",
    "InFlow",
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
    "Limit",
    "Month",
    "NewWebhook",
    "Override",
    "Overview",
    "Page",
    "PayloadTooLarge",
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
    "Reprioritise",
    "ResultTimeout",
    "ResultUnreadable",
    "Retention",
    "Retry",
    "RetryAfter",
    "RetryNow",
    "Rule",
    "RunNow",
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
    "Steer",
    "Step",
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
    "current",
    "split",
    "whole",
]
