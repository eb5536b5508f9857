"""Functions become tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload

from tidemill.app.application import Application
from tidemill.client.registry import (
    Awaited,
    BatchDecorator,
    BatchTaskOptions,
    Decorator,
    TaskOptions,
    define_batch_task,
    define_task,
    refuse_duplicate,
)
from tidemill.client.task import Task
from tidemill.core.queues import for_paid_tasks
from tidemill.errors import ConfigurationError
from tidemill.settings.queues import declared
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition

P = ParamSpec("P")
R = TypeVar("R")


class Registers(Application):
    @overload
    def task(self, handler: Callable[Concatenate[Context, P], Awaited[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, handler: Callable[P, Awaited[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, handler: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, handler: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, handler: None = None, /, **options: Unpack[TaskOptions]) -> Decorator: ...
    def task(self, handler: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Register a function: `@app.task` or `@app.task(queue="feeds", retry=Retry(attempts=3))`.

        The options are name, queue, priority, retry, timeout, isolate, expires, key, unique, pool, cost,
        paid, warn_bytes, max_bytes. `key`, `unique` and `cost` may be functions of the task's arguments."""
        if handler is None:
            return lambda function: self._register(define_task(function, options))
        return self._register(define_task(handler, options))

    def batch_task(self, *, max_items: int, **options: Unpack[BatchTaskOptions]) -> BatchDecorator:
        """Register a function that takes many jobs in one call: `@app.batch_task(max_items=128, linger=0.2)`
        above `async def embed(texts: list[Text]) -> list[Vector | Failed]`. A job is one item,
        `await embed.enqueue(text)`, and has its own result: the one in its place of the list.

        The options are those of `task` and max_units, linger, on_error, item_cost. `key`, `unique` and
        `item_cost` may be functions of one item."""
        return cast(
            "BatchDecorator",
            lambda function: self._register(define_batch_task(function, max_items, options)),
        )

    def _register(self, definition: TaskDefinition) -> Task[Any, Any]:
        refuse_duplicate(self.tasks.get(definition.name), definition)
        self._refuse_strange_pools(definition)
        self.tasks[definition.name] = definition
        self._declare_queue_of(definition)
        return Task(self.client, definition)

    def _declare_queue_of(self, task: TaskDefinition) -> None:
        before = self.queues.get(task.queue)
        if before is None and not task.costs_money and not self.settings.queue(task.queue):
            return
        settings = before or declared(self.settings, task.queue)
        self.queues[task.queue] = for_paid_tasks(settings) if task.costs_money else settings
        if self.queues[task.queue] != before:
            self.client.settings_changed()

    def _refuse_strange_pools(self, task: TaskDefinition) -> None:
        for use in task.pools:
            if self.pools.get(use.pool.name) is not use.pool.settings:
                raise ConfigurationError(
                    f"task {task.name!r}: pool: {use.pool.name!r} is a pool of another application; declare "
                    "it with this one's app.pool(…)"
                )
