"""A job as Django's TaskResult."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable
from copy import copy
from typing import Any

import msgspec

from tidemill import errors
from tidemill.app import Tidemill
from tidemill.contract.reader import AttemptRecord
from tidemill.core.job import Error, Job
from tidemill.core.states import State
from tidemill.frameworks.django_tasks.api import Task, TaskError, TaskResult, TaskResultDoesNotExist
from tidemill.frameworks.django_tasks.names import STATUS, NotATask, moment, task_at, their_priority

PREFIX = "django:"

_OURS = {"Timeout": "builtins.TimeoutError"}


class Call(msgspec.Struct):
    """What a job is to run. `run_after` is kept for the result; the store knows it as the due time."""

    path: str
    args: list[Any]
    kwargs: dict[str, Any]
    run_after: float | None = None


class _Payload(msgspec.Struct):
    call: Call


async def read(app: Tidemill, id_: str, alias: str) -> TaskResult[Any]:
    store = await app.client.look()
    (job,) = await store.get([id_])
    if job is None or not job.task.startswith(PREFIX):
        raise TaskResultDoesNotExist(id_)
    attempts = await store.attempts(id_) if job.fence else []
    return result_of(job, attempts, alias)


def result_of(job: Job, attempts: Iterable[AttemptRecord], alias: str) -> TaskResult[Any]:
    """One error and one worker for each attempt that failed, and the worker of the last one."""
    call = msgspec.json.decode(job.payload, type=_Payload).call
    failed = list(attempts)
    workers = [attempt.worker or "" for attempt in failed]
    if job.state in (State.RUNNING, State.DONE):
        workers.append(job.worker or "")
    result: TaskResult[Any] = TaskResult(
        task=_task(job, call, alias),
        id=job.id,
        status=STATUS[job.state],
        enqueued_at=moment(job.created),
        started_at=moment(failed[0].started if failed else job.started),
        last_attempted_at=moment(job.started or (failed[-1].started if failed else None)),
        finished_at=moment(job.finished),
        args=call.args,
        kwargs=call.kwargs,
        backend=alias,
        errors=_errors(job, failed),
        worker_ids=workers,
    )
    if job.result is not None:
        object.__setattr__(result, "_return_value", msgspec.json.decode(job.result))
    return result


def _task(job: Job, call: Call, alias: str) -> Task[..., Any]:
    try:
        task = task_at(call.path)
    except NotATask as error:
        raise TaskResultDoesNotExist(f"{job.id}: {error}") from error
    held = {
        "priority": their_priority(job.priority),
        "queue_name": job.queue,
        "run_after": moment(call.run_after),
        "backend": alias,
    }
    # Not by `using`, which refuses what may not be enqueued any more: the job is there and must run.
    described = copy(task)
    for name, value in held.items():
        object.__setattr__(described, name, value)
    return described


def _errors(job: Job, failed: Iterable[AttemptRecord]) -> list[TaskError]:
    told = [error_of(attempt.error) for attempt in failed if attempt.error is not None]
    if job.state is State.CANCELLED:
        told.append(error_of(Error("JobCancelled", job.reason or "cancelled")))
    elif job.state is State.FAILED and not told:
        told.append(error_of(job.error or Error("JobFailed", job.reason or "failed")))
    return told


def error_of(error: Error) -> TaskError:
    return TaskError(
        exception_class_path=_class_path(error),
        traceback=error.traceback or f"{error.type}: {error.message}\n",
    )


def _class_path(error: Error) -> str:
    """A job keeps the name of an exception, and its traceback says the path of what is not a builtin."""
    if error.type in _OURS:
        return _OURS[error.type]
    told = re.escape(f"{error.type}: {error.message}" if error.message else error.type)
    paths: list[str] = re.findall(rf"^[ |]*([\w.<>]+)\.{told}", error.traceback or "", re.MULTILINE)
    if paths:
        return f"{paths[-1]}.{error.type}"
    if hasattr(errors, error.type):
        return f"{errors.__name__}.{error.type}"
    return (
        f"{builtins.__name__}.{error.type}"
        if hasattr(builtins, error.type)
        else f"{errors.__name__}.JobFailed"
    )
