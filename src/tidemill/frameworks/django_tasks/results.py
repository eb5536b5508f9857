"""Converts a job into Django's TaskResult, with states, priorities and times."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable
from copy import copy
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from tidemill import errors
from tidemill.app import Tidemill
from tidemill.contract.reader import AttemptRecord
from tidemill.core.jobs import DEFAULT_PRIORITY, Error, Job
from tidemill.core.states import State
from tidemill.frameworks.django_tasks.compat import (
    TASK_MAX_PRIORITY,
    TASK_MIN_PRIORITY,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)

STATUS_BY_STATE = {
    State.SCHEDULED: TaskResultStatus.READY,
    State.READY: TaskResultStatus.READY,
    State.WAITING: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.DONE: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,  # Django has no such status; the error says "cancelled"
}


class NotADjangoTask(Exception):
    """Raised if a path does not lead to a function decorated with Django's `@task`."""


def to_tidemill_priority(priority: int) -> int:
    """Returns the Tidemill priority for a Django priority. In Django a larger number is more urgent, in
    Tidemill a smaller one. Django's default becomes Tidemill's default."""
    return DEFAULT_PRIORITY - priority


def to_django_priority(priority: int) -> int:
    """Returns the Django priority for a Tidemill priority. A value outside of Django's range becomes the
    nearest allowed value."""
    return min(max(DEFAULT_PRIORITY - priority, TASK_MIN_PRIORITY), TASK_MAX_PRIORITY)


def import_task(path: str) -> Task[..., Any]:
    """Imports and returns the Django task at `path`. Raises `NotADjangoTask` for anything else, because a
    payload must not be able to run any function."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise NotADjangoTask(f"{path!r} cannot be imported: {error}") from error
    if not isinstance(found, Task) or found.module_path != path:
        raise NotADjangoTask(f"{path!r} is not a function decorated with Django's @task")
    return found


def to_datetime(time: float | None) -> datetime | None:
    """Returns a wall time as an aware datetime; None for None. With `USE_TZ = False` it is a naive datetime
    in the project's time zone."""
    if time is None:
        return None
    aware = datetime.fromtimestamp(time, UTC)
    return aware if settings.USE_TZ else timezone.make_naive(aware)


def to_timestamp(time: datetime | None) -> float | None:
    if time is None:
        return None
    return (time if timezone.is_aware(time) else timezone.make_aware(time)).timestamp()


TASK_NAME_PREFIX = "django:"

_ERROR_PATHS = {"Timeout": "builtins.TimeoutError"}


class DjangoTaskCall(msgspec.Struct):
    """The payload of a job that runs a Django task: the task's import path and arguments. `run_after` is a
    wall time that is only shown in the TaskResult."""

    path: str
    args: list[Any]
    kwargs: dict[str, Any]
    run_after: float | None = None


class _DjangoTaskPayload(msgspec.Struct):
    call: DjangoTaskCall


async def load_result(app: Tidemill, id_: str, alias: str) -> TaskResult[Any]:
    store = await app.client.store_for_reading()
    (job,) = await store.get([id_])
    if job is None or not job.task.startswith(TASK_NAME_PREFIX):
        raise TaskResultDoesNotExist(id_)
    attempts = await store.attempts(id_) if job.fence else []
    return to_task_result(job, attempts, alias)


def to_task_result(job: Job, attempts: Iterable[AttemptRecord], alias: str) -> TaskResult[Any]:
    """Returns Django's TaskResult for a job. `attempts` are the failed attempts of the job. `alias` is the
    name of the backend."""
    call = msgspec.json.decode(job.payload, type=_DjangoTaskPayload).call
    failed = list(attempts)
    workers = [attempt.worker or "" for attempt in failed]
    if job.state in (State.RUNNING, State.DONE):
        workers.append(job.worker or "")
    result: TaskResult[Any] = TaskResult(
        task=_task(job, call, alias),
        id=job.id,
        status=STATUS_BY_STATE[job.state],
        enqueued_at=to_datetime(job.created),
        started_at=to_datetime(failed[0].started if failed else job.started),
        last_attempted_at=to_datetime(job.started or (failed[-1].started if failed else None)),
        finished_at=to_datetime(job.finished),
        args=call.args,
        kwargs=call.kwargs,
        backend=alias,
        errors=_errors(job, failed),
        worker_ids=workers,
    )
    if job.result is not None:
        object.__setattr__(result, "_return_value", msgspec.json.decode(job.result))
    return result


def _task(job: Job, call: DjangoTaskCall, alias: str) -> Task[..., Any]:
    try:
        task = import_task(call.path)
    except NotADjangoTask as error:
        raise TaskResultDoesNotExist(f"{job.id}: {error}") from error
    held = {
        "priority": to_django_priority(job.priority),
        "queue_name": job.queue,
        "run_after": to_datetime(call.run_after),
        "backend": alias,
    }
    # `using` refuses options that are no longer valid, but this job exists and must run.
    described = copy(task)
    for name, value in held.items():
        object.__setattr__(described, name, value)
    return described


def _errors(job: Job, failed: Iterable[AttemptRecord]) -> list[TaskError]:
    found = [to_task_error(attempt.error) for attempt in failed if attempt.error is not None]
    if job.state is State.CANCELLED:
        found.append(to_task_error(Error("JobCancelled", job.reason or "cancelled")))
    elif job.state is State.FAILED and not found:
        found.append(to_task_error(job.error or Error("JobFailed", job.reason or "failed")))
    return found


def to_task_error(error: Error) -> TaskError:
    return TaskError(
        exception_class_path=_class_path(error),
        traceback=error.traceback or f"{error.type}: {error.message}\n",
    )


def _class_path(error: Error) -> str:
    """Returns the import path of an exception class, which TaskError needs. The path is searched in the
    traceback, because a job stores only the name of the class."""
    if error.type in _ERROR_PATHS:
        return _ERROR_PATHS[error.type]
    shown = re.escape(f"{error.type}: {error.message}" if error.message else error.type)
    paths: list[str] = re.findall(rf"^[ |]*([\w.<>]+)\.{shown}", error.traceback or "", re.MULTILINE)
    if paths:
        return f"{paths[-1]}.{error.type}"
    if hasattr(errors, error.type):
        return f"{errors.__name__}.{error.type}"
    if hasattr(builtins, error.type):
        return f"{builtins.__name__}.{error.type}"
    return f"{errors.__name__}.JobFailed"
