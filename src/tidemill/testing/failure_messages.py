"""Messages of failed assertions: the expected jobs, the actual jobs, and the reason for the difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import indent
from typing import Any

import msgspec

from tidemill.core.jobs import Job
from tidemill.core.states import State
from tidemill.tasks.definition import TaskDefinition

_MAX_JOBS_LISTED = 20
_MAX_TEXT_LENGTH = 200


def decode_arguments(job: Job) -> dict[str, Any]:
    arguments: dict[str, Any] = msgspec.json.decode(job.payload)
    return arguments


def format_not_enqueued(
    task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any], jobs: Sequence[Job]
) -> str:
    expected = _expected_arguments(task, args, kwargs)
    sentence = f"{task.name} was not enqueued" + (f" with {_format_call(expected)}" if args or kwargs else "")
    if not jobs:
        return f"{sentence}; nothing was"
    # Jobs of the same task come first: one of them is usually the intended job.
    nearest = sorted(jobs, key=lambda job: job.task != task.name)
    lines = []
    for job in nearest[:_MAX_JOBS_LISTED]:
        lines.append(f"  {_format_job(job)}")
        if job.task == task.name:
            lines.extend(f"      {line}" for line in _format_differences(expected, decode_arguments(job)))
    if len(nearest) > _MAX_JOBS_LISTED:
        lines.append(f"  and {len(nearest) - _MAX_JOBS_LISTED} more")
    return "\n".join([f"{sentence}. Enqueued were:", *lines])


def format_unexpected_enqueue(
    task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any], jobs: Sequence[Job]
) -> str:
    call = f" with {_format_call(_expected_arguments(task, args, kwargs))}" if args or kwargs else ""
    return "\n".join(
        [f"{task.name} was enqueued{call}:", *(f"  {_format_job(job)}" for job in jobs[:_MAX_JOBS_LISTED])]
    )


def format_failures(jobs: Iterable[Job]) -> str:
    failures = [f"{_format_job(job)}, {_format_attempts(job)}\n{_format_traceback(job)}" for job in jobs]
    number = "1 job" if len(failures) == 1 else f"{len(failures)} jobs"
    hint = "Where failing is what the test is about, run with check=False."
    return "\n".join([f"{number} failed:", *failures, hint])


def format_not_done(job: Job, task: TaskDefinition | None, now: float, stops: Sequence[str]) -> str:
    """Explains why the job has no result. Each of `stops` is a sentence about something that blocks it."""
    if task is None:
        return f"{_format_job(job)}: its task is not registered with the application"
    lines = [f"{_format_job(job)}, {_format_attempts(job)}; there is no result"]
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
        lines.append(_format_traceback(job))
    return "\n".join(lines)


def _expected_arguments(
    task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    if not args and not kwargs:
        return {}
    expected: dict[str, Any] = msgspec.json.decode(task.payload.encode(args, kwargs))
    return expected


def _format_differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}: {_format_argument(actual, name)} instead of {_format_argument(expected, name)}"
        for name in dict.fromkeys([*expected, *actual])
        if _format_argument(actual, name) != _format_argument(expected, name)
    ]


def _format_argument(arguments: Mapping[str, Any], name: str) -> str:
    return _truncate(repr(arguments[name])) if name in arguments else "its default"


def _format_job(job: Job) -> str:
    return (
        f"{job.task}{_format_call(decode_arguments(job))}, {job.state} on queue {job.queue!r} (job {job.id})"
    )


def _format_call(arguments: Mapping[str, Any]) -> str:
    return _truncate("(" + ", ".join(f"{name}={value!r}" for name, value in arguments.items()) + ")")


def _format_attempts(job: Job) -> str:
    return f"after {job.attempts} attempt{'' if job.attempts == 1 else 's'}"


def _format_traceback(job: Job) -> str:
    if job.error is None:
        return f"  {job.reason}"
    return indent((job.error.traceback or f"{job.error.type}: {job.error.message}").rstrip(), "  ")


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_LENGTH else f"{text[: _MAX_TEXT_LENGTH - 1]}…"
