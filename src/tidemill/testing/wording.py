"""What a failed assertion says: what was wanted, what there is instead, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import indent
from typing import Any

import msgspec

from tidemill.core.job import Job
from tidemill.core.states import State
from tidemill.tasks.definition import TaskDefinition

_SHOWN = 20
_LONGEST = 200


def shown_call(job: Job) -> dict[str, Any]:
    arguments: dict[str, Any] = msgspec.json.decode(job.payload)
    return arguments


def not_enqueued(
    task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any], jobs: Sequence[Job]
) -> str:
    wanted = _wanted(task, args, kwargs)
    sentence = f"{task.name} was not enqueued" + (f" with {_call(wanted)}" if args or kwargs else "")
    if not jobs:
        return f"{sentence}; nothing was"
    # Jobs of the same task first: one of them is usually the one that was meant.
    nearest = sorted(jobs, key=lambda job: job.task != task.name)
    lines = []
    for job in nearest[:_SHOWN]:
        lines.append(f"  {_job(job)}")
        if job.task == task.name:
            lines.extend(f"      {line}" for line in _differences(wanted, shown_call(job)))
    if len(nearest) > _SHOWN:
        lines.append(f"  and {len(nearest) - _SHOWN} more")
    return "\n".join([f"{sentence}. Enqueued were:", *lines])


def was_enqueued(
    task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any], jobs: Sequence[Job]
) -> str:
    call = f" with {_call(_wanted(task, args, kwargs))}" if args or kwargs else ""
    return "\n".join([f"{task.name} was enqueued{call}:", *(f"  {_job(job)}" for job in jobs[:_SHOWN])])


def failed(jobs: Iterable[Job]) -> str:
    told = [f"{_job(job)}, {_attempts(job)}\n{_trace(job)}" for job in jobs]
    number = "1 job" if len(told) == 1 else f"{len(told)} jobs"
    hint = "Where failing is what the test is about, run with check=False."
    return "\n".join([f"{number} failed:", *told, hint])


def not_done(job: Job, task: TaskDefinition | None, now: float, stops: Sequence[str]) -> str:
    """`stops` are sentences: what keeps a kit from running it."""
    if task is None:
        return f"{_job(job)}: its task is not registered with the application"
    lines = [f"{_job(job)}, {_attempts(job)}; there is no result"]
    if stops:
        lines.extend(stops)
        lines.append("`run_for` lets time pass, where time ends it.")
    elif job.state is State.SCHEDULED and job.due > now:
        lines.append(f"It is due in {job.due - now:g} s: `run_for` lets that time pass.")
    elif job.state is State.SCHEDULED:
        lines.append(f"It has been due for {now - job.due:g} s: `run_until_idle` or `run_for` runs it.")
    elif job.state is State.READY:
        lines.append("It has not run: `run_until_idle` runs it.")
    elif job.reason:
        lines.append(f"The reason: {job.reason}")
    if job.error is not None:
        lines.append(_trace(job))
    return "\n".join(lines)


def _wanted(task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    if not args and not kwargs:
        return {}
    wanted: dict[str, Any] = msgspec.json.decode(task.payload.encode(args, kwargs))
    return wanted


def _differences(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}: {_value(there, name)} instead of {_value(wanted, name)}"
        for name in dict.fromkeys([*wanted, *there])
        if _value(there, name) != _value(wanted, name)
    ]


def _value(arguments: Mapping[str, Any], name: str) -> str:
    return _short(repr(arguments[name])) if name in arguments else "its default"


def _job(job: Job) -> str:
    return f"{job.task}{_call(shown_call(job))}, {job.state} on queue {job.queue!r} (job {job.id})"


def _call(arguments: Mapping[str, Any]) -> str:
    return _short("(" + ", ".join(f"{name}={value!r}" for name, value in arguments.items()) + ")")


def _attempts(job: Job) -> str:
    return f"after {job.attempts} attempt{'' if job.attempts == 1 else 's'}"


def _trace(job: Job) -> str:
    if job.error is None:
        return f"  {job.reason}"
    return indent((job.error.traceback or f"{job.error.type}: {job.error.message}").rstrip(), "  ")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
