"""How Django's names and ours stand for each other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from tidemill.core.job import DEFAULT_PRIORITY
from tidemill.core.states import State
from tidemill.frameworks.django_tasks.api import (
    TASK_MAX_PRIORITY,
    TASK_MIN_PRIORITY,
    Task,
    TaskResultStatus,
)

STATUS = {
    State.SCHEDULED: TaskResultStatus.READY,
    State.READY: TaskResultStatus.READY,
    State.WAITING: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.DONE: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,  # Django has no word for it; the error says so
}


class NotATask(Exception):
    """A path that does not lead to a function decorated with Django's `@task`."""


def our_priority(priority: int) -> int:
    """Larger is more urgent for Django, smaller for us; both defaults are the same urgency."""
    return DEFAULT_PRIORITY - priority


def their_priority(priority: int) -> int:
    """Operators and retry penalties may go further than Django counts."""
    return min(max(DEFAULT_PRIORITY - priority, TASK_MIN_PRIORITY), TASK_MAX_PRIORITY)


def task_at(path: str) -> Task[..., Any]:
    """Only what was made a task may be run: a payload is data, and must not choose any function."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise NotATask(f"{path!r} cannot be imported: {error}") from error
    if not isinstance(found, Task) or found.module_path != path:
        raise NotATask(f"{path!r} is not a function decorated with Django's @task")
    return found


def moment(time: float | None) -> datetime | None:
    """As Django keeps times: aware, or naive in the project's zone without USE_TZ."""
    if time is None:
        return None
    aware = datetime.fromtimestamp(time, UTC)
    return aware if settings.USE_TZ else timezone.make_naive(aware)


def seconds(time: datetime | None) -> float | None:
    if time is None:
        return None
    return (time if timezone.is_aware(time) else timezone.make_aware(time)).timestamp()
