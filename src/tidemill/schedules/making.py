"""From a schedule's work to a job, as the task's code of today makes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from tidemill.core.courses import Made
from tidemill.core.job import Error, NewJob
from tidemill.core.uniqueness import Unique
from tidemill.errors import ConfigurationError
from tidemill.schedules.schedule import Schedule, Work
from tidemill.schedules.settings import Overlap
from tidemill.tasks.definition import TaskDefinition

_OF_JOBS = ("priority", "key", "expires", "timeout", "unique", "trace", "tags", "needs")


def make(schedule: Schedule, task: TaskDefinition, overlap: Overlap, job: str, at: float | None) -> Made:
    """What cannot be made is kept as a failed job: the task's own functions may raise anything, and its
    parameters may be others by now."""
    work = schedule.work
    queue = task.queue if work.queue is UNSET else work.queue
    try:
        made = _made(work, task, job, at)
    except Exception as error:  # noqa: BLE001 - see above
        plain = NewJob(id=job, task=work.task, payload=bytes(work.payload))
        return Made(queue, plain, Error(type(error).__name__, _storable(str(error))))
    if overlap == "skip" and made.unique is None:
        made = msgspec.structs.replace(made, unique=Unique(unique_key(schedule.name)))
    return Made(queue, made)


def fits(work: Work, task: TaskDefinition) -> bool:
    """Whether the task of today takes these arguments."""
    try:
        task.payload.decode(bytes(work.payload))
    except Exception:  # noqa: BLE001 - a user's own types may raise anything
        return False
    return True


def unique_key(name: str) -> str:
    """What holds ticks of a schedule apart where its task has no key of its own."""
    return f"schedule {name}"


def work_of(queue: str, job: NewJob, task: TaskDefinition) -> Work:
    """What of a job that was made now has to be said at every tick: all that is not the task's own."""
    if job.at is not None or job.delay:
        raise ConfigurationError(
            f"{'at' if job.at is not None else 'delay'}: the schedule says when its jobs start; leave it out"
        )
    plain = Work(task=job.task, payload=msgspec.Raw(job.payload))
    usual = _made(plain, task, job.id, None)
    other = {name: getattr(job, name) for name in _OF_JOBS if getattr(job, name) != getattr(usual, name)}
    if queue != task.queue:
        other["queue"] = queue
    return msgspec.structs.replace(plain, **other)


def _made(work: Work, task: TaskDefinition, job: str, at: float | None) -> NewJob:
    payload = bytes(work.payload)
    decoded = task.payload.decode(payload)
    computes = task.pools or task.key is not None or callable(task.unique)
    usual = _usual(task, task.payload.by_name(*decoded) if computes else {})
    said = {name: value for name in _OF_JOBS if (value := getattr(work, name)) is not UNSET}
    batching = None if task.batch is None else task.batch.together
    return NewJob(id=job, task=work.task, payload=payload, at=at, batching=batching, **usual | said)


def _usual(task: TaskDefinition, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the task itself says of its jobs."""
    usual: dict[str, Any] = {"priority": task.priority, "expires": task.expires}
    if task.key is not None:
        usual["key"] = task.key(**arguments)
    if task.unique is not None:
        usual["unique"] = task.unique(**arguments) if callable(task.unique) else task.unique
    if task.pools:
        from tidemill.tasks.costs import needs_of  # with all there is to pools: most tasks have none

        usual["needs"] = needs_of(task, arguments)
    return usual


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")
