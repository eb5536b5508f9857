"""Enqueues jobs when a Django transaction commits, and closes outdated database connections around each
handler."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import close_old_connections, transaction

from tidemill.app import Tidemill
from tidemill.client.client import Client
from tidemill.client.job_handle import JobHandle
from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.tasks.context import Context

P = ParamSpec("P")
R = TypeVar("R")


def enqueue_on_commit(task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
    """Enqueues a job when the current transaction commits, and returns its handle. Outside of a transaction
    the job is enqueued at once. Set options with `task.using(…)`.

    You can write the job id into a row of the same transaction. The unique key is checked only after the
    commit. If another job holds the key then, no job with this id is created."""
    return send_on_commit(task, task.job(*args, **kwargs))


def send_on_commit(
    task: Task[..., R], request: JobRequest[R], *, database: str | None = None
) -> JobHandle[R]:
    """Does the same as `enqueue_on_commit`, for a request that `task.job(…)` returned. `database` is the
    alias of the database whose transaction counts; None is the default database."""
    client: Client = task.client
    transaction.on_commit(partial(client.enqueue_sync, request), using=database)
    return JobHandle(client, request.job.id, queue=request.queue)


_FRESH_MARK = "_tidemill_fresh_connections"


def use_fresh_connections(app: Tidemill) -> None:
    """Makes every handler start and end with Django's `close_old_connections()`.

    Call it once per worker process, after all tasks are registered. `manage.py tidemill_worker` calls it for
    you."""
    for task in app.tasks.values():
        if not task.is_async and not hasattr(task.handler, _FRESH_MARK):
            # Changed in place: an isolated process finds the handler through the same definition.
            object.__setattr__(task, "handler", _with_fresh_connections(task.handler))
    if not any(hasattr(around, _FRESH_MARK) for around in app.middlewares):
        app.middleware(_async_middleware(app))


def _with_fresh_connections(handler: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(handler)
    def call(*args: Any, **kwargs: Any) -> Any:
        close_old_connections()
        try:
            return handler(*args, **kwargs)
        finally:
            close_old_connections()

    setattr(call, _FRESH_MARK, True)
    return call


def _async_middleware(app: Tidemill) -> Callable[..., Awaitable[Any]]:
    close = sync_to_async(close_old_connections)

    async def around(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:
        if not app.tasks[ctx.task].is_async:
            return await run()
        await close()
        try:
            return await run()
        finally:
            await close()

    setattr(around, _FRESH_MARK, True)
    return around
