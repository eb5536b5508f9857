"""The declarations of an application: tasks, queues, pools, schedules, middleware and listeners."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload

from tidemill.app.application import Application, resolve_queue_settings
from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.client.task_options import (
    BatchDecorator,
    BatchTaskOptions,
    HandlerCoroutine,
    TaskDecorator,
    TaskOptions,
    define_batch_task,
    define_task,
    refuse_duplicate,
)
from tidemill.core.queues import QueueOptions, QueueSettings, with_paid_retention
from tidemill.core.validation import refuse_unknown_options
from tidemill.errors import ConfigurationError
from tidemill.tasks.context import Context
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.telemetry.event_base import Event

if TYPE_CHECKING:
    from tidemill.client.schedules import Schedules
    from tidemill.core.limits import Limit
    from tidemill.schedules.settings import ScheduleOptions
    from tidemill.tasks.periodic import PeriodicFunction
    from tidemill.tasks.pools import Classifier, Classifiers, Pool, PoolOptions


LifespanT = TypeVar("LifespanT", bound=Callable[[], AsyncIterator[Any] | AbstractAsyncContextManager[Any]])


def make_lifespan(function: Callable[[], Any]) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """Returns a function that creates the context manager of the lifespan. `function` is an async generator
    function, with or without `@asynccontextmanager`. Raises ConfigurationError for anything else."""
    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(function)
    if inspect.isasyncgenfunction(inspect.unwrap(function)):
        return function  # `@asynccontextmanager` was applied already
    raise ConfigurationError(
        f"lifespan: {function!r} is not an async generator function; write `async def shared(): … yield it …`"
    )


def check_middleware(function: Middleware) -> None:
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)):
        raise ConfigurationError(
            f"middleware: {function!r} is not async; write `async def` and `return await run()`"
        )


P = ParamSpec("P")
R = TypeVar("R")


class TaskDeclarations(Application):
    @overload
    def task(self, handler: Callable[Concatenate[Context, P], HandlerCoroutine[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, handler: Callable[P, HandlerCoroutine[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, handler: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, handler: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, handler: None = None, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(self, handler: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Registers a function: `@app.task` or `@app.task(queue="feeds", retry=Retry(attempts=3))`.

        The options are name, queue, priority, retry, timeout, isolate, expires, key, unique, pool, cost,
        paid, warn_bytes, max_bytes. `key`, `unique` and `cost` may be functions of the task's arguments."""
        if handler is None:
            return lambda function: self._register(define_task(function, options))
        return self._register(define_task(handler, options))

    def batch_task(self, *, max_items: int, **options: Unpack[BatchTaskOptions]) -> BatchDecorator:
        """Registers a function that runs many jobs in one call: `@app.batch_task(max_items=128, linger=0.2)`
        above `async def embed(texts: list[Text]) -> list[Vector | FailedItem]`.

        Each job has one item: `await embed.enqueue(text)`. Its result is at the same position in the returned
        list. The options are those of `task`, and max_units, linger, on_error and item_cost; see
        `BatchTaskOptions`."""
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
        settings = before or resolve_queue_settings(self.settings, task.queue)
        self.queues[task.queue] = with_paid_retention(settings) if task.costs_money else settings
        if self.queues[task.queue] != before:
            self.client.settings_changed()

    def _refuse_strange_pools(self, task: TaskDefinition) -> None:
        for use in task.pools:
            if self.pools.get(use.pool.name) is not use.pool.settings:
                raise ConfigurationError(
                    f"task {task.name!r}: pool: {use.pool.name!r} is a pool of another application; declare "
                    "it with this one's app.pool(…)"
                )


ClassifierT = TypeVar("ClassifierT", bound="Classifier")


class ResourceDeclarations(Application):
    def queue(self, name: str, **settings: Unpack[QueueOptions]) -> QueueSettings:
        """Declares a queue and returns its settings. Settings that you do not pass come from the environment,
        the TOML file or the defaults. An operator's override stays."""
        refuse_unknown_options(settings, QueueSettings.__struct_fields__, f"queue {name!r}")
        if name in self.declared_in_code:
            raise ConfigurationError(
                f"queue {name!r} is declared twice; put its settings into one app.queue(…)"
            )
        resolved = resolve_queue_settings(self.settings, name, settings)
        costs_money = any(task.costs_money for task in self.tasks.values() if task.queue == name)
        self.queues[name] = with_paid_retention(resolved) if costs_money else resolved
        self.declared_in_code.add(name)
        self.client.settings_changed()
        return self.queues[name]

    def pool(self, name: str, *limits: Limit, **options: Unpack[PoolOptions]) -> Pool:
        """Declares a provider's quota: `app.pool("gemini", Limit.requests(10, per="minute"))`. Tasks use it
        with `pool=`.

        An operator's override and the recorded usage stay."""
        from tidemill.tasks.pools import declare_pool

        if name in self.pools:
            raise ConfigurationError(f"pool {name!r} is declared twice; put its limits into one app.pool(…)")
        pool = declare_pool(name, limits, options, self.classifiers)
        self.pools[name] = pool.settings
        self.client.settings_changed()
        return pool

    @property
    def classifiers(self) -> Classifiers:
        """The functions of this application that classify provider responses, for all its pools."""
        if self._classifiers is None:
            from tidemill.tasks.pools import Classifiers

            self._classifiers = Classifiers()
        return self._classifiers

    def classify(self, function: ClassifierT) -> ClassifierT:
        """Registers a function that classifies exceptions and responses of all providers. Use it as a
        decorator.

        The function takes the exception or response. It returns a `Refusal`, False if it is no refusal, or
        None if unknown. The function of `app.pool(…, classify=…)` runs first; the built-in adapters run
        last."""
        self.classifiers.add(function)
        return function

    @property
    def schedules(self) -> Schedules:
        """Creates, changes and lists schedules: `await app.schedules.upsert("feed-7", refresh.job(feed),
        every=3600)`."""
        if self._schedules is None:
            from tidemill.client.schedules import Schedules

            self._schedules = Schedules(
                self.client,
                lambda: self.entropy.new_id(),  # noqa: PLW0108 - `use_store` replaces the store, so it is read at each call
            )
        return self._schedules

    def schedule(
        self, name: str, what: Task[..., Any] | JobRequest[Any], **options: Unpack[ScheduleOptions]
    ) -> None:
        """Declares a schedule: `app.schedule("nightly", reembed_all, cron="0 3 * * *", tz="Asia/Shanghai")`.

        For a task with arguments pass `reembed_all.job(…)`. The options are cron and tz, or every; also
        start, end, catch_up, overlap and jitter. Workers write the schedule to the store when they start. An
        operator's override or pause stays. If you remove the schedule from the code, it is disabled but stays
        in the store."""
        self.schedules.declare(name, what, options)


ListenerT = TypeVar("ListenerT", bound=Callable[[Any], object])
T = TypeVar("T")


class HookDeclarations(Application):
    def lifespan(self, function: LifespanT) -> LifespanT:
        """Registers the function that opens the state shared by all handlers. Use it as a decorator on an
        async generator function that yields once.

        Handlers get the yielded value as `ctx.state`. The code after `yield` runs when the worker stops."""
        if self._lifespan is not None:
            raise ConfigurationError("lifespan is given twice; open everything in one function")
        self._lifespan = make_lifespan(function)
        return function

    def periodic(
        self,
        name: str,
        *,
        every: float | timedelta,
        retry_in: float | timedelta | None = None,
        on_every_worker: bool = False,
    ) -> Callable[[Callable[[], Awaitable[T]]], PeriodicFunction[T]]:
        """Declares a function that a worker calls every `every` seconds, without a job:
        `@app.periodic("reconcile", every=60)` above an async function without arguments. Its `wake()`
        requests a run now.

        - `name`: must be unique among the programs of a store.
        - `retry_in`: seconds until the next run after a failed one; `every` by default.
        - `on_every_worker`: True if each worker runs it. By default one worker of the store does; if it
          stops, another takes over within seconds."""
        from tidemill.tasks.periodic import PeriodicFunction

        if name in self.periodics:
            raise ConfigurationError(f"periodic {name!r} is declared twice; give one of them another name")

        def declare(function: Callable[[], Awaitable[T]]) -> PeriodicFunction[T]:
            made = PeriodicFunction(
                name,
                function,
                every=every,
                retry_in=retry_in,
                on_every_worker=on_every_worker,
                send_wakeup=self._send_wakeup,
            )
            self.periodics[name] = made
            return made

        return declare

    def _send_wakeup(self, topic: str) -> None:
        """Sends a wake-up from a process without a worker. Does nothing if its store is not open."""
        if (store := self.client.current_store()) is not None:
            store.wake([topic])

    def middleware(self, function: Middleware) -> Middleware:
        """Registers a function that wraps every attempt: `async def around(ctx, run): …; return await run()`.

        The middleware that is registered first is the outermost."""
        check_middleware(function)
        self.middlewares.append(function)
        return function

    def on(self, *types: type[Event]) -> Callable[[ListenerT], ListenerT]:
        """Registers a listener: `@app.on(JobFailed)` above a function of one event, `@app.on()` for all
        events.

        Events are in `tidemill.telemetry.events`. The function runs where the event occurs, on any thread: it
        must be short and not async. An error in it is logged once and affects no job."""

        def subscribe(listener: ListenerT) -> ListenerT:
            self.signals.subscribe(listener, *types)
            return listener

        self.signals.check(types)
        return subscribe
