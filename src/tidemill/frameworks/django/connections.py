"""Database connections in a worker.

Django looks after its connections around requests: one that is too old or was closed by the server is
replaced. A worker has no requests, so the same is done around attempts, each on the thread where its
connections are: a sync handler's own, and for async handlers the one Django's async ORM runs on.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from tidemill.app import Tidemill
from tidemill.tasks.context import Context

_FRESH = "_tidemill_fresh_connections"


def use_fresh_connections(app: Tidemill) -> None:
    """Call it once in a worker's process, when every task is registered. `tidemill_worker` does."""
    for task in app.tasks.values():
        if not task.is_async and not hasattr(task.handler, _FRESH):
            # In place: an isolated process finds the handler through the same definition.
            object.__setattr__(task, "handler", _with_fresh_connections(task.handler))
    if not any(hasattr(around, _FRESH) for around in app.middlewares):
        app.middleware(_around_async_handlers_of(app))


def _with_fresh_connections(handler: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(handler)
    def call(*args: Any, **kwargs: Any) -> Any:
        close_old_connections()
        try:
            return handler(*args, **kwargs)
        finally:
            close_old_connections()

    setattr(call, _FRESH, True)
    return call


def _around_async_handlers_of(app: Tidemill) -> Callable[..., Awaitable[Any]]:
    close = sync_to_async(close_old_connections)

    async def around(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:
        if not app.tasks[ctx.task].is_async:
            return await run()
        await close()
        try:
            return await run()
        finally:
            await close()

    setattr(around, _FRESH, True)
    return around
