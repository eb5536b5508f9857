"""How a worker runs Django's tasks: one handler for plain functions, in threads, one for async ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from tidemill.app import Tidemill
from tidemill.core.retry import Retry
from tidemill.errors import GiveUp, Steer
from tidemill.frameworks.django_tasks.api import (
    TaskContext,
    TaskResult,
    TaskResultStatus,
    task_finished,
    task_started,
)
from tidemill.frameworks.django_tasks.names import NotATask, moment, task_at
from tidemill.frameworks.django_tasks.results import PREFIX, Call, read
from tidemill.tasks.context import Context


def register(app: Tidemill, alias: str, sender: type, *, retry: Retry, timeout: float) -> None:
    """Once for an application and an alias, however many backends Django makes of it."""
    if f"{PREFIX}{alias}" in app.tasks:
        return
    run = _Run(app, alias, sender, retry)

    @app.task(name=f"{PREFIX}{alias}", retry=retry, timeout=timeout)
    def plain(ctx: Context, call: Call) -> Any:
        _refuse_others(call.path)
        result = app.run_sync(read(app, ctx.job_id, alias))
        with run.attempt(ctx, result) as outcome:
            outcome.append(result.task.func(*run.arguments(result), **call.kwargs))
        return outcome[0]

    @app.task(name=f"{PREFIX}{alias}:async", retry=retry, timeout=timeout)
    async def coroutine(ctx: Context, call: Call) -> Any:
        _refuse_others(call.path)
        result = await read(app, ctx.job_id, alias)
        with run.attempt(ctx, result) as outcome:
            outcome.append(await result.task.func(*run.arguments(result), **call.kwargs))
        return outcome[0]


class _Run:
    def __init__(self, app: Tidemill, alias: str, sender: type, retry: Retry) -> None:
        self._app, self._alias, self._sender = app, alias, sender
        self._attempts = retry.attempts

    def arguments(self, result: TaskResult[Any]) -> list[Any]:
        context = [TaskContext(task_result=result)] if result.task.takes_context else []
        return [*context, *result.args]

    @contextmanager
    def attempt(self, ctx: Context, result: TaskResult[Any]) -> Iterator[list[Any]]:
        """Django's signals around an attempt. An attempt that will be retried has not finished."""
        task_started.send(self._sender, task_result=result)
        outcome: list[Any] = []
        try:
            yield outcome
        except Steer:
            raise
        except Exception as error:  # noqa: BLE001 - a task may raise anything
            if ctx.attempt >= self._attempts:
                self._finished(result, TaskResultStatus.FAILED)
            raise _with_its_path(error) from None
        object.__setattr__(result, "_return_value", outcome[0])
        self._finished(result, TaskResultStatus.SUCCESSFUL)

    def _finished(self, result: TaskResult[Any], status: TaskResultStatus) -> None:
        object.__setattr__(result, "status", status)
        object.__setattr__(result, "finished_at", moment(self._app.clock.wall()))
        task_finished.send(self._sender, task_result=result)


def _refuse_others(path: str) -> None:
    try:
        task_at(path)
    except NotATask as error:
        raise GiveUp(str(error)) from None


def _with_its_path(error: Exception) -> Exception:
    """A job keeps the name of an exception, and Django asks for its path: raise one that is named so,
    with the traceback and the causes of the first."""
    kind = type(error)
    named = _named(f"{kind.__module__}.{kind.__qualname__}")(str(error)).with_traceback(error.__traceback__)
    named.__cause__, named.__context__ = error.__cause__, error.__context__
    named.__suppress_context__ = error.__suppress_context__
    return named


@cache
def _named(path: str) -> type[Exception]:
    return type(path, (Exception,), {"__module__": "builtins"})  # which a traceback does not write
