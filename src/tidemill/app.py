"""The application: the one place where a store, a client and workers are put together."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import datetime
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    get_type_hints,
    overload,
)

import msgspec

from tidemill.client.client import Client
from tidemill.client.handle import JobHandle
from tidemill.client.options import read_time, refuse_unknown
from tidemill.client.registry import Awaited, Decorator, TaskOptions, define_task, refuse_duplicate
from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.clock import Clock, Entropy, SystemClock, SystemEntropy
from tidemill.contract.store import Store
from tidemill.core.queue_options import QueueOptions
from tidemill.core.queues import QueueSettings
from tidemill.errors import ConfigurationError
from tidemill.inspect.explanation import Explanation
from tidemill.inspect.inspector import Inspector
from tidemill.logs import use_stderr_unless_configured
from tidemill.tasks.context import Context
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.urls import DEFAULT_URL, StoreUrl

if TYPE_CHECKING:
    from tidemill.worker.options import WorkerOptions
    from tidemill.worker.worker import Lifespan, Worker

P = ParamSpec("P")
R = TypeVar("R")
Opens = TypeVar("Opens", bound=Callable[[], AsyncIterator[Any] | AbstractAsyncContextManager[Any]])


class Tidemill:
    """Tasks, queues and the store they live in.

    Without a `url` the environment's TIDEMILL_URL is taken, else a SQLite file in the working
    directory. The store is opened by the first use; `async with app` closes it again.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        self.url = StoreUrl.parse(url or os.environ.get("TIDEMILL_URL") or DEFAULT_URL)
        self.clock: Clock = clock or SystemClock()
        self.entropy: Entropy = entropy or SystemEntropy()
        self.tasks: dict[str, TaskDefinition] = {}
        self.queues: dict[str, QueueSettings] = {}
        self.middlewares: list[Middleware] = []
        self._lifespan: Lifespan | None = None
        self._store = store
        self.client = Client(self._root, self.tasks, self.queues, self.clock, self.entropy)

    @property
    def store(self) -> Store:
        """The store itself, for reading (`await app.store.find(…)`) inside `async with app`."""
        return self.client.store_here() or self._root()

    @property
    def inspect(self) -> Inspector:
        """Look at queues and jobs, and change them: `await app.inspect.queue("feeds")`."""
        return Inspector(self.client.store, self.tasks)

    async def explain(self, id: str) -> Explanation:  # noqa: A002 - the word for it
        """Why a job waits, or what it does."""
        return await self.inspect.explain(id)

    async def __aenter__(self) -> Self:
        await self.client.store()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Lets accepted work finish. Harmless when repeated; the next use opens the store again."""
        await self.client.close()

    def close_sync(self) -> None:
        self.client.close_sync()

    @contextmanager
    def moved(
        self, *, store: Store, clock: Clock, entropy: Entropy, lifespan: Lifespan | None = None
    ) -> Iterator[None]:
        """Work on another store meanwhile: what `tidemill.testing` is built on. Tasks that were
        registered before and after go there too."""
        before = self._store, self.clock, self.entropy, self._lifespan
        self._store, self.clock, self.entropy = store, clock, entropy
        self._lifespan = lifespan or self._lifespan
        try:
            with self.client.moved(clock, entropy):
                yield
        finally:
            self._store, self.clock, self.entropy, self._lifespan = before

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
        """Register a function: `@app.task` or `@app.task(queue="feeds", retry=Retry(attempts=3))`."""
        if handler is None:
            return lambda function: self._register(function, options)
        return self._register(handler, options)

    def queue(self, name: str, **settings: Unpack[QueueOptions]) -> QueueSettings:
        """Declare a queue. It is written to the store by the application's next use of it; an
        operator's override of it stays."""
        refuse_unknown(settings, QueueSettings.__struct_fields__, f"queue {name!r}")
        if name in self.queues:
            raise ConfigurationError(
                f"queue {name!r} is declared twice; put its settings into one app.queue(…)"
            )
        declared = QueueSettings(**settings)
        try:
            problem = declared.problem()
        except TypeError:
            problem = "a setting has the wrong type; numbers are whole, keep_… take a Retention"
        if problem:
            raise ConfigurationError(f"queue {name!r}: {problem}")
        self.queues[name] = declared
        self.client.queues_changed()
        return declared

    def lifespan(self, function: Opens) -> Opens:
        """What handlers share: an async generator function that yields once, with or without
        `@asynccontextmanager`. `ctx.state` is what it yielded; the rest of it runs when the worker stops."""
        if self._lifespan is not None:
            raise ConfigurationError("lifespan is given twice; open everything in one function")
        self._lifespan = _lifespan_of(function)
        return function

    def middleware(self, function: Middleware) -> Middleware:
        """Wrap every attempt: `async def around(ctx, run): …; return await run()`. The first
        registered is the outermost."""
        if not (
            inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
        ):
            raise ConfigurationError(
                f"middleware: {function!r} is not async; write `async def` and `return await run()`"
            )
        self.middlewares.append(function)
        return function

    async def enqueue_many(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        """Send many jobs in few calls of up to 10 000 jobs or 32 MB. Within one call the jobs of a queue
        are accepted or refused together; calls before a refused one stay accepted. After an error the
        same requests can be sent again without doubling any. The 5 s deadline is per call."""
        return await self.client.enqueue_many(requests)

    def enqueue_many_sync(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        return self.client.enqueue_many_sync(requests)

    def job(self, id: str) -> JobHandle[Any]:  # noqa: A002 - the word for it
        """A handle on a job made elsewhere."""
        return JobHandle(self.client, id)

    async def pause(
        self, queue: str, *, until: float | datetime | None = None, reason: str | None = None
    ) -> None:
        """Running jobs go on; nothing new of the queue starts until `until` or `resume`."""
        end = None if until is None else read_time("until", until)
        await (await self.client.store()).pause(queue, until=end, reason=reason)

    async def resume(self, queue: str) -> None:
        await (await self.client.store()).resume(queue)

    def worker(self, **options: Any) -> Worker:
        """A worker to be run inside `async with app`. Options are those of `WorkerOptions`; without
        `queues` it serves every queue that was declared or that a task is on, by weight."""
        from tidemill.worker.worker import Worker

        use_stderr_unless_configured()
        return Worker(
            self.store,
            self.tasks,
            options=self.worker_options(**options),
            clock=self.clock,
            entropy=self.entropy,
            lifespan=self._lifespan,
            middleware=self.middlewares,
        )

    def worker_options(self, **options: Any) -> WorkerOptions:
        """Checked, without building a worker."""
        from tidemill.worker.options import WorkerOptions

        refuse_unknown(options, WorkerOptions.__dataclass_fields__, "worker")
        given = options | {"queues": self._weights(options.get("queues"))}
        _refuse_wrong_types(given, get_type_hints(WorkerOptions))
        return WorkerOptions(**given)

    async def work(self, **options: Any) -> None:
        """Run a worker on this loop until SIGTERM or SIGINT: the first drains, another a second later
        hands everything back."""
        from tidemill.worker.drain import on_signals

        async with self:
            worker = self.worker(**options)
            with on_signals(worker.stop, worker.stop_now):
                await worker.run()

    def run_worker(self, **options: Any) -> None:
        """Run a worker until it is told to stop. Blocks; takes uvloop when it is installed."""
        _best_loop()(self.work(**options))

    async def supervise(self, command: Sequence[str], processes: int, *, until_idle: bool = False) -> None:
        """Keep that many worker processes running until SIGTERM or SIGINT. `command` starts one;
        `tidemill worker --processes N` is the usual way here."""
        from tidemill.worker.drain import on_signals
        from tidemill.worker.supervisor import Supervisor

        async with self:
            supervisor = Supervisor(
                command, processes, store=self.store, entropy=self.entropy, until_idle=until_idle
            )
            with on_signals(supervisor.stop, supervisor.stop):
                await supervisor.run()

    def _weights(self, queues: Mapping[str, int | None] | Iterable[str] | None) -> dict[str, int]:
        """Named without a weight, a queue has the one it was declared with."""
        if queues is None:
            queues = dict.fromkeys(
                [*self.queues, *(task.queue for task in self.tasks.values())] or ["default"]
            )
        elif isinstance(queues, str):
            queues = [queues]
        given = queues if isinstance(queues, Mapping) else dict.fromkeys(queues)
        plain = QueueSettings()
        return {
            name: self.queues.get(name, plain).weight if weight is None else weight
            for name, weight in given.items()
        }

    def _root(self) -> Store:
        if self._store is None:
            self._store = _make_store(self.url, self.clock, self.entropy)
        return self._store

    def _register(self, handler: Callable[..., Any], options: dict[str, Any]) -> Task[Any, Any]:
        definition = define_task(handler, options)
        refuse_duplicate(self.tasks.get(definition.name), definition)
        self.tasks[definition.name] = definition
        return Task(self.client, definition)


def _lifespan_of(function: Callable[[], Any]) -> Lifespan:
    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(function)
    if inspect.isasyncgenfunction(inspect.unwrap(function)):
        return function  # `@asynccontextmanager` was applied already
    raise ConfigurationError(
        f"lifespan: {function!r} is not an async generator function; write `async def shared(): … yield it …`"
    )


def _refuse_wrong_types(options: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name, value in options.items():
        try:
            msgspec.convert(value, wanted[name])
        except msgspec.ValidationError as error:
            raise ConfigurationError(
                f"worker: {name}: {error}; it is {value!r}, give it as a value of that type"
            ) from None


def _best_loop() -> Callable[[Coroutine[Any, Any, None]], None]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _make_store(url: StoreUrl, clock: Clock, entropy: Entropy) -> Store:
    """Imported here and nowhere else: a program pays for the one store it uses."""
    if url.scheme == "memory":
        from tidemill.stores.memory import MemoryStore

        return MemoryStore(clock=clock, entropy=entropy)
    from tidemill.stores.sqlite import SqliteStore

    return SqliteStore(url.path, clock=clock, entropy=entropy)
