"""The Django task backend, and the Tidemill handlers that run Django's tasks in a worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from tidemill.app import Tidemill
from tidemill.client.job_options import JobOptions
from tidemill.client.request import JobRequest
from tidemill.client.task import Task as OurTask
from tidemill.core.jobs import DEFAULT_PRIORITY
from tidemill.core.outcomes import FinalFailure
from tidemill.core.retry import NO_RETRY, Retry
from tidemill.errors import ConfigurationError, GiveUp
from tidemill.frameworks.django.apps import get_application
from tidemill.frameworks.django_tasks.compat import (
    BaseTaskBackend,
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
    task_finished,
    task_started,
)
from tidemill.frameworks.django_tasks.results import (
    TASK_NAME_PREFIX,
    DjangoTaskCall,
    NotADjangoTask,
    import_task,
    load_result,
    to_datetime,
    to_task_error,
    to_tidemill_priority,
    to_timestamp,
)
from tidemill.tasks.context import Context
from tidemill.tasks.definition import DEFAULT_TIMEOUT_SECONDS
from tidemill.worker.outcomes import outcome_of_error


def register_handlers(app: Tidemill, alias: str, sender: type, *, retry: Retry, timeout: float) -> None:
    """Registers two handlers with the application, which run Django's sync and async tasks.

    - `alias`: the name of the backend in TASKS
    - `sender`: the class that sends Django's signals"""
    if f"{TASK_NAME_PREFIX}{alias}" in app.tasks:
        return
    run = _DjangoTaskRunner(app, sender, retry)

    @app.task(name=f"{TASK_NAME_PREFIX}{alias}", retry=retry, timeout=timeout)
    def plain(ctx: Context, call: DjangoTaskCall) -> Any:
        _check_is_django_task(call.path)
        result = app.run_sync(load_result(app, ctx.job_id, alias))
        with run.attempt(ctx, result) as outcome:
            outcome.append(normalize_json(result.task.func(*run.arguments(result), **call.kwargs)))
        return outcome[0]

    @app.task(name=f"{TASK_NAME_PREFIX}{alias}:async", retry=retry, timeout=timeout)
    async def coroutine(ctx: Context, call: DjangoTaskCall) -> Any:
        _check_is_django_task(call.path)
        result = await load_result(app, ctx.job_id, alias)
        with run.attempt(ctx, result) as outcome:
            outcome.append(normalize_json(await result.task.func(*run.arguments(result), **call.kwargs)))
        return outcome[0]


class _DjangoTaskRunner:
    def __init__(self, app: Tidemill, sender: type, retry: Retry) -> None:
        self._app, self._sender, self._retry = app, sender, retry

    def arguments(self, result: TaskResult[Any]) -> list[Any]:
        context = [TaskContext(task_result=result)] if result.task.takes_context else []
        return [*context, *result.args]

    @contextmanager
    def attempt(self, ctx: Context, result: TaskResult[Any]) -> Iterator[list[Any]]:
        """A context manager that sends Django's signals `task_started` and `task_finished` around an attempt.
        It yields a list, to which the `with` block appends the return value of the Django task.

        No `task_finished` is sent if the attempt will be retried or was cancelled."""
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
        """Returns the error as Django's TaskError if the job fails for good. Returns None if the job will run
        again."""
        outcome = outcome_of_error(error, self._retry, ctx.attempt, DEFAULT_PRIORITY, 0.0)
        return to_task_error(outcome.error) if isinstance(outcome, FinalFailure) else None

    def _finished(self, ctx: Context, result: TaskResult[Any], status: TaskResultStatus) -> None:
        if ctx.cancelled:  # a thread that continues after its timeout; its result is not recorded
            return
        object.__setattr__(result, "status", status)
        object.__setattr__(result, "finished_at", to_datetime(self._app.clock.wall()))
        task_finished.send(self._sender, task_result=result)


def _check_is_django_task(path: str) -> None:
    try:
        import_task(path)
    except NotADjangoTask as error:
        raise GiveUp(str(error)) from None


_OPTIONS = ("APP", "URL", "RETRY", "TIMEOUT")


class TidemillBackend(BaseTaskBackend):
    """The Django task backend of Tidemill. It has four OPTIONS:

    - `URL`: the address of a store
    - `APP`: the import path of an existing Tidemill application. Without `URL` and `APP` the setting
      TIDEMILL_APP is used
    - `RETRY`: the arguments of a `Retry` as a dictionary. By default tasks are not retried
    - `TIMEOUT`: the timeout of a task in seconds"""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        _refuse_unknown(alias, self.options)
        try:
            self.app = _application(self.options)
            register_handlers(
                self.app,
                alias,
                type(self),
                retry=_retry(self.options),
                timeout=self.options.get("TIMEOUT", DEFAULT_TIMEOUT_SECONDS),
            )
        except ConfigurationError as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: {error}") from error

    def enqueue(self, task: Task[..., Any], args: Any, kwargs: Any) -> TaskResult[Any]:
        request, result = self._prepared(task, args, kwargs)
        self.app.client.enqueue_sync(request)
        return self._enqueued(result)

    async def aenqueue(self, task: Task[..., Any], args: Any, kwargs: Any) -> TaskResult[Any]:
        request, result = self._prepared(task, args, kwargs)
        await self.app.client.enqueue(request)
        return self._enqueued(result)

    def get_result(self, result_id: str) -> TaskResult[Any]:
        return self.app.run_sync(load_result(self.app, str(result_id), self.alias))

    async def aget_result(self, result_id: str) -> TaskResult[Any]:
        return await load_result(self.app, str(result_id), self.alias)

    def _prepared(
        self, task: Task[..., Any], args: Any, kwargs: Any
    ) -> tuple[JobRequest[Any], TaskResult[Any]]:
        self.validate_task(task)
        result: TaskResult[Any] = TaskResult(  # raises before the enqueue if an argument is not JSON
            task=task,
            id=self.app.entropy.new_id(),
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        return self._request(task, result), result

    def _request(self, task: Task[..., Any], result: TaskResult[Any]) -> JobRequest[Any]:
        kind = ":async" if iscoroutinefunction(task.func) else ""
        definition = self.app.tasks[f"{TASK_NAME_PREFIX}{self.alias}{kind}"]
        runner: OurTask[..., Any] = OurTask(self.app.client, definition)
        options: JobOptions = {
            "id": result.id,
            "queue": task.queue_name,
            "priority": to_tidemill_priority(task.priority),
            "tags": [task.module_path],
        }
        run_after = to_timestamp(task.run_after)
        if run_after is not None:
            options["at"] = run_after
        call = DjangoTaskCall(task.module_path, result.args, result.kwargs, run_after)
        return runner.using(**options).job(call)

    def _enqueued(self, result: TaskResult[Any]) -> TaskResult[Any]:
        object.__setattr__(result, "enqueued_at", to_datetime(self.app.clock.wall()))
        task_enqueued.send(type(self), task_result=result)
        return result


_MADE: dict[str, Tidemill] = {}
_LOCK = threading.Lock()


def _application(options: Mapping[str, Any]) -> Tidemill:
    """Returns the application for the OPTIONS of a backend. Django creates a backend per thread; backends
    with the same `URL` share one application."""
    if "URL" not in options:
        return get_application(options.get("APP"))
    with _LOCK:
        url = str(options["URL"])
        if url not in _MADE:
            _MADE[url] = Tidemill(url)
        return _MADE[url]


def _retry(options: Mapping[str, Any]) -> Retry:
    retry_options = options.get("RETRY")
    if retry_options is None:
        return NO_RETRY
    try:
        return Retry(**retry_options)
    except TypeError as error:
        raise ConfigurationError(f"RETRY: {error}; give a dictionary such as {{'attempts': 3}}") from None


def _refuse_unknown(alias: str, options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in _OPTIONS:
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]: unknown option {name!r}; valid options are {', '.join(_OPTIONS)}"
            )
    if "APP" in options and "URL" in options:
        raise ImproperlyConfigured(f"TASKS[{alias!r}]: give either APP or URL, not both")
