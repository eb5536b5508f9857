"""The backend itself: Django's tasks in, jobs out, and their results back."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from inspect import iscoroutinefunction
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from tidemill.app import Tidemill
from tidemill.client.options import JobOptions
from tidemill.client.request import JobRequest
from tidemill.client.task import Task as OurTask
from tidemill.core.retry import NEVER, Retry
from tidemill.errors import ConfigurationError
from tidemill.frameworks.django.application import application
from tidemill.frameworks.django_tasks.api import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultStatus,
    task_enqueued,
)
from tidemill.frameworks.django_tasks.names import moment, our_priority, seconds
from tidemill.frameworks.django_tasks.results import PREFIX, Call, read
from tidemill.frameworks.django_tasks.running import register
from tidemill.tasks.definition import DEFAULT_TIMEOUT

_OPTIONS = ("APP", "URL", "RETRY", "TIMEOUT")


class TidemillBackend(BaseTaskBackend):
    """OPTIONS: `URL` of a store, or `APP`, the path of an application that is there already (without
    both, the setting TIDEMILL_APP); `RETRY`, the options of a `Retry`, none by default as Django's tasks
    promise none; `TIMEOUT` in seconds."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        _refuse_unknown(alias, self.options)
        try:
            self.app = _application(self.options)
            register(
                self.app,
                alias,
                type(self),
                retry=_retry(self.options),
                timeout=self.options.get("TIMEOUT", DEFAULT_TIMEOUT),
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
        return self.app.run_sync(read(self.app, str(result_id), self.alias))

    async def aget_result(self, result_id: str) -> TaskResult[Any]:
        return await read(self.app, str(result_id), self.alias)

    def _prepared(
        self, task: Task[..., Any], args: Any, kwargs: Any
    ) -> tuple[JobRequest[Any], TaskResult[Any]]:
        self.validate_task(task)
        result: TaskResult[Any] = TaskResult(  # raises for what is not JSON, before anything is sent
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
        runner: OurTask[..., Any] = OurTask(self.app.client, self.app.tasks[f"{PREFIX}{self.alias}{kind}"])
        options: JobOptions = {
            "id": result.id,
            "queue": task.queue_name,
            "priority": our_priority(task.priority),
            "tags": [task.module_path],
        }
        run_after = seconds(task.run_after)
        if run_after is not None:
            options["at"] = run_after
        return runner.using(**options).job(Call(task.module_path, result.args, result.kwargs, run_after))

    def _enqueued(self, result: TaskResult[Any]) -> TaskResult[Any]:
        object.__setattr__(result, "enqueued_at", moment(self.app.clock.wall()))
        task_enqueued.send(type(self), task_result=result)
        return result


_MADE: dict[str, Tidemill] = {}
_LOCK = threading.Lock()


def _application(options: Mapping[str, Any]) -> Tidemill:
    """Django makes a backend for every thread; they share one application."""
    if "URL" not in options:
        return application(options.get("APP"))
    with _LOCK:
        url = str(options["URL"])
        if url not in _MADE:
            _MADE[url] = Tidemill(url)
        return _MADE[url]


def _retry(options: Mapping[str, Any]) -> Retry:
    given = options.get("RETRY")
    if given is None:
        return NEVER
    try:
        return Retry(**given)
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
