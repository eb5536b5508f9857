"""How a worker runs Django's tasks: one handler for plain functions, in threads, one for async ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tidemill.app import Tidemill
from tidemill.core.job import DEFAULT_PRIORITY
from tidemill.core.outcomes import Fail
from tidemill.core.retry import Retry
from tidemill.errors import GiveUp
from tidemill.frameworks.django_tasks.api import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from tidemill.frameworks.django_tasks.names import NotATask, moment, task_at
from tidemill.frameworks.django_tasks.results import PREFIX, Call, error_of, read
from tidemill.tasks.context import Context
from tidemill.worker.translate import outcome_of


def register(app: Tidemill, alias: str, sender: type, *, retry: Retry, timeout: float) -> None:
    """Once for an application and an alias, however many backends Django makes of it."""
    if f"{PREFIX}{alias}" in app.tasks:
        return
    run = _Run(app, sender, retry)

    @app.task(name=f"{PREFIX}{alias}", retry=retry, timeout=timeout)
    def plain(ctx: Context, call: Call) -> Any:
        _refuse_others(call.path)
        result = app.run_sync(read(app, ctx.job_id, alias))
        with run.attempt(ctx, result) as outcome:
            outcome.append(normalize_json(result.task.func(*run.arguments(result), **call.kwargs)))
        return outcome[0]

    @app.task(name=f"{PREFIX}{alias}:async", retry=retry, timeout=timeout)
    async def coroutine(ctx: Context, call: Call) -> Any:
        _refuse_others(call.path)
        result = await read(app, ctx.job_id, alias)
        with run.attempt(ctx, result) as outcome:
            outcome.append(normalize_json(await result.task.func(*run.arguments(result), **call.kwargs)))
        return outcome[0]


class _Run:
    def __init__(self, app: Tidemill, sender: type, retry: Retry) -> None:
        self._app, self._sender, self._retry = app, sender, retry

    def arguments(self, result: TaskResult[Any]) -> list[Any]:
        context = [TaskContext(task_result=result)] if result.task.takes_context else []
        return [*context, *result.args]

    @contextmanager
    def attempt(self, ctx: Context, result: TaskResult[Any]) -> Iterator[list[Any]]:
        """Django's signals around an attempt. One that will be retried has not finished, and how one
        that was stopped from outside ends is not decided here."""
        task_started.send(self._sender, task_result=result)
        outcome: list[Any] = []
        try:
            yield outcome
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            if (failure := self._failure(ctx, error)) is not None:
                result.errors.append(failure)
                self._finished(ctx, result, TaskResultStatus.FAILED)
            raise
        object.__setattr__(result, "_return_value", outcome[0])
        self._finished(ctx, result, TaskResultStatus.SUCCESSFUL)

    def _failure(self, ctx: Context, error: BaseException) -> TaskError | None:
        """What the worker will make of it, asked before: None when the task will run again."""
        outcome = outcome_of(error, self._retry, ctx.attempt, DEFAULT_PRIORITY, 0.0)
        return error_of(outcome.error) if isinstance(outcome, Fail) else None

    def _finished(self, ctx: Context, result: TaskResult[Any], status: TaskResultStatus) -> None:
        if ctx.cancelled:  # a thread that goes on after its timeout: what it did is not recorded
            return
        object.__setattr__(result, "status", status)
        object.__setattr__(result, "finished_at", moment(self._app.clock.wall()))
        task_finished.send(self._sender, task_result=result)


def _refuse_others(path: str) -> None:
    try:
        task_at(path)
    except NotATask as error:
        raise GiveUp(str(error)) from None
