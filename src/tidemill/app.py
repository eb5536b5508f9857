"""The application: the one place where a store, a client and workers are put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, cast, overload

from tidemill.client.client import Client
from tidemill.client.handle import JobHandle
from tidemill.client.hooks import Opens, check_middleware, lifespan_of
from tidemill.client.portal import refuse_running
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
from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.clock import Clock, Entropy, SystemClock, SystemEntropy
from tidemill.core.job import Job
from tidemill.core.names import refuse_unknown
from tidemill.core.queue_options import QueueOptions
from tidemill.core.queues import QueueSettings
from tidemill.errors import ConfigurationError
from tidemill.logs import configure, in_force, write_events
from tidemill.settings import Settings
from tidemill.settings.queues import declared
from tidemill.settings.store import store_url
from tidemill.tasks.context import Context
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.telemetry.base import Event
from tidemill.telemetry.signals import Signals
from tidemill.urls import OWN_STORE, StoreUrl

if TYPE_CHECKING:
    from tidemill.client.flow_handle import FlowHandle
    from tidemill.client.flows import Flow
    from tidemill.client.schedules import Schedules
    from tidemill.contract.store import Store
    from tidemill.core.limits import Limit
    from tidemill.core.pools import PoolSettings
    from tidemill.inspect.explanation import Explanation
    from tidemill.inspect.inspector import Inspector
    from tidemill.inspect.plan import Plan
    from tidemill.schedules.settings import ScheduleOptions
    from tidemill.settings.arguments import WorkerArguments
    from tidemill.tasks.classifiers import Classifiers, Classify
    from tidemill.tasks.pools import Pool, PoolOptions
    from tidemill.worker.options import WorkerOptions
    from tidemill.worker.worker import Lifespan, Worker

P = ParamSpec("P")
R = TypeVar("R")
Listens = TypeVar("Listens", bound=Callable[[Any], object])
Judges = TypeVar("Judges", bound="Classify")


class Tidemill:
    """Tasks, queues and the store they live in.

    `url` names the store, such as `sqlite:///jobs.db`. Without it the environment does
    (TIDEMILL_URL), or a `tidemill.toml` in the working directory, or it is `sqlite:///tidemill.db`
    there. `config` names another TOML file. The store is opened by the first use; `async with app`
    closes it again.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        config: str | Path | None = None,
        store: Store | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        self.settings = Settings.load({"url": url or None}, config=config)
        self.url: StoreUrl = OWN_STORE if store is not None and not url else store_url(self.settings)
        self.clock: Clock = clock or SystemClock()
        self.entropy: Entropy = entropy or SystemEntropy()
        self.tasks: dict[str, TaskDefinition] = {}
        self.queues: dict[str, QueueSettings] = {
            name: declared(self.settings, name) for name in self.settings.queues
        }
        self.pools: dict[str, PoolSettings] = {}
        self._classifiers: Classifiers | None = None
        self._schedules: Schedules | None = None
        self.middlewares: list[Middleware] = []
        self.declared_in_code: set[str] = set()
        """The queues of `app.queue(…)`; others may be set in the TOML file only."""
        self._lifespan: Lifespan | None = None
        self._store = store
        self.brings_store = store is not None
        """True when the program made the store itself: `url` then does not lead to it."""
        self.signals = Signals()
        write_events(self.signals)
        self.client = Client(
            self._root,
            self.tasks,
            self.queues,
            self.pools,
            clock=self.clock,
            entropy=self.entropy,
            signals=self.signals,
        )

    @property
    def store(self) -> Store:
        """The store itself, for reading (`await app.store.find(…)`) inside `async with app`."""
        return self.client.store_here() or self._root()

    @property
    def inspect(self) -> Inspector:
        """Look at queues and jobs, and change them: `await app.inspect.queue("feeds")`."""
        from tidemill.inspect.inspector import Inspector

        return Inspector(self.client.store, self.tasks, self.client.signals)

    async def explain(self, id: str) -> Explanation:  # noqa: A002 - the word for it
        """Why a job waits, or what it does."""
        return await self.inspect.explain(id)

    async def plan(
        self,
        what: Task[Any, Any] | JobRequest[Any] | Iterable[JobRequest[Any]],
        *,
        count: int | None = None,
        takes: float | None = None,
    ) -> Plan:
        """When so many jobs would be done if they were sent now: `await app.plan(describe, count=12_000)`.

        Where cost or keys are computed from the arguments, give an example of a job,
        `app.plan(describe.job(chunk), count=12_000)`, or all of them as a list. `takes` is how many seconds
        a call is under way; without it the last jobs of the task are looked at. Nothing is sent."""
        from tidemill.client.planned import sendings
        from tidemill.inspect.planning import plan

        return await plan(await self.client.store(declare=False), sendings(what, count), takes, self.pools)

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
        """`close` for programs without an event loop."""
        self.client.close_sync()

    @contextmanager
    def moved(
        self,
        *,
        store: Store,
        url: StoreUrl,
        clock: Clock,
        entropy: Entropy,
        lifespan: Lifespan | None = None,
        mind_waiting: Callable[[Job], None],
    ) -> Iterator[None]:
        """Work on another store meanwhile: what `tidemill.testing` is built on. Tasks that were
        registered before and after go there too. `mind_waiting` may end a wait for a job's result."""
        before = self._store, self.url, self.clock, self.entropy, self._lifespan
        self._store, self.url, self.clock, self.entropy = store, url, clock, entropy
        self._lifespan = lifespan or self._lifespan
        try:
            with self.client.moved(clock, entropy, mind_waiting):
                yield
        finally:
            self._store, self.url, self.clock, self.entropy, self._lifespan = before

    def run_sync(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine of this application from a program without an event loop:
        `app.run_sync(app.inspect.pause("feeds"))`. Refused on an event loop's thread: await it there."""
        refuse_running(work)
        return self.client.run_sync(lambda: work)

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
        warn_bytes, max_bytes. `key`, `unique` and `cost` may be functions of the task's arguments."""
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

    def queue(self, name: str, **settings: Unpack[QueueOptions]) -> QueueSettings:
        """Declare a queue. What is not said here comes from the environment, the TOML file or the
        defaults. It is written to the store by the application's next use of it; an operator's
        override of it stays."""
        refuse_unknown(settings, QueueSettings.__struct_fields__, f"queue {name!r}")
        if name in self.declared_in_code:
            raise ConfigurationError(
                f"queue {name!r} is declared twice; put its settings into one app.queue(…)"
            )
        self.queues[name] = declared(self.settings, name, settings)
        self.declared_in_code.add(name)
        self.client.settings_changed()
        return self.queues[name]

    def pool(self, name: str, *limits: Limit, **options: Unpack[PoolOptions]) -> Pool:
        """Declare what a provider meters: `app.pool("gemini", Limit.requests(10, per="minute"))`. It is
        written to the store by the application's next use of it; an operator's override of it and what
        was used stay. Tasks take it with `pool=`."""
        from tidemill.tasks.pools import declared_pool

        if name in self.pools:
            raise ConfigurationError(f"pool {name!r} is declared twice; put its limits into one app.pool(…)")
        pool = declared_pool(name, limits, options, self.classifiers)
        self.pools[name] = pool.settings
        self.client.settings_changed()
        return pool

    @property
    def schedules(self) -> Schedules:
        """Schedules made by calls, one per thing if need be, and all of them to look at and to steer:
        `await app.schedules.upsert("feed-7", refresh.job(feed), every=3600)`."""
        if self._schedules is None:
            from tidemill.client.schedules import Schedules

            self._schedules = Schedules(
                self.client,
                lambda: self.entropy.new_id(),  # noqa: PLW0108 - another's, while a test has moved this
            )
        return self._schedules

    def schedule(
        self, name: str, what: Task[..., Any] | JobRequest[Any], **options: Unpack[ScheduleOptions]
    ) -> None:
        """Declare a schedule: `app.schedule("nightly", reembed_all, cron="0 3 * * *", tz="Asia/Shanghai")`,
        with arguments `reembed_all.job(…)`. The options are cron and tz, or every; start, end, catch_up,
        overlap, jitter. Workers write it to the store when they start; an operator's override or pause of
        it stays. One that is gone from the code is disabled, and kept."""
        self.schedules.declare(name, what, options)

    @property
    def classifiers(self) -> Classifiers:
        """The application's own, of all its pools."""
        if self._classifiers is None:
            from tidemill.tasks.classifiers import Classifiers

            self._classifiers = Classifiers()
        return self._classifiers

    def classify(self, function: Judges) -> Judges:
        """Say what an error or a response of any provider means, before the built-in adapters are asked:
        a plain function of the exception or response. It returns a `Refusal`, False when it surely is
        none, or None when it does not know. `app.pool(…, classify=…)` is asked before."""
        self.classifiers.add(function)
        return function

    def lifespan(self, function: Opens) -> Opens:
        """What handlers share: an async generator function that yields once, with or without
        `@asynccontextmanager`. `ctx.state` is what it yielded; the rest of it runs when the worker stops."""
        if self._lifespan is not None:
            raise ConfigurationError("lifespan is given twice; open everything in one function")
        self._lifespan = lifespan_of(function)
        return function

    def middleware(self, function: Middleware) -> Middleware:
        """Wrap every attempt: `async def around(ctx, run): …; return await run()`. The first
        registered is the outermost."""
        check_middleware(function)
        self.middlewares.append(function)
        return function

    def on(self, *types: type[Event]) -> Callable[[Listens], Listens]:
        """Be told what happens: `@app.on(JobFailed)` above a function of one event, `@app.on()` for all.
        Events are in `tidemill.telemetry.events`. The function is called where it happens, on any thread:
        it must be quick and plain. What it raises is logged once and hurts no job."""

        def subscribe(listener: Listens) -> Listens:
            self.signals.subscribe(listener, *types)
            return listener

        self.signals.check(types)
        return subscribe

    async def enqueue_many(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        """Send many jobs in few calls of up to 1 000 jobs or 2 MB. Within one call the jobs of a queue
        are accepted or refused together; calls before a refused one stay accepted. After an error the
        same requests can be sent again without doubling any. The 5 s deadline is per call."""
        return await self.client.enqueue_many(requests)

    def enqueue_many_sync(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        """`enqueue_many` for programs without an event loop."""
        return self.client.enqueue_many_sync(requests)

    def flow(
        self,
        name: str,
        *,
        key: str | None = None,
        priority: int | None = None,
        timeout: float | timedelta | None = None,
        keep: float | timedelta | None = None,
    ) -> Flow:
        """Begin to build a flow, a graph of jobs: `flow.add(task, …)` and `flow.map(task, …)` are its steps,
        `await flow.enqueue()` sends it.

        With a `key` there is one flow of that name and key, also an hour after it is gone. `priority` is that
        of steps whose task was given none by `using`. When `timeout` is over the flow fails, and its jobs are
        cancelled. It is kept for `keep` seconds once it has ended, with its jobs: a day if it is done, seven
        otherwise."""
        from tidemill.client.flows import Flow

        return Flow(self.client, name, key=key, priority=priority, timeout=timeout, keep=keep)

    def flow_handle(self, id: str) -> FlowHandle:  # noqa: A002 - the word for it
        """A handle on a flow made elsewhere."""
        from tidemill.client.flow_handle import FlowHandle

        return FlowHandle(self.client, id)

    def job(self, id: str) -> JobHandle[Any]:  # noqa: A002 - the word for it
        """A handle on a job made elsewhere."""
        return JobHandle(self.client, id)

    def worker(self, **options: Unpack[WorkerArguments]) -> Worker:
        """A worker to be run inside `async with app`. Options are `WorkerArguments`; without `queues` it
        serves every queue that was declared or that a task is on, by weight."""
        from tidemill.worker.worker import Worker

        self._log_as_set()
        return Worker(
            self.store,
            self.tasks,
            self.pools,
            schedules=None if self._schedules is None else self._schedules.declared,
            options=self.worker_options(**options),
            clock=self.clock,
            entropy=self.entropy,
            signals=self.signals,
            location=_location(self.url),
            lifespan=self._lifespan,
            middleware=self.middlewares,
        )

    def worker_options(self, **options: Unpack[WorkerArguments]) -> WorkerOptions:
        """What a worker would run with: these options, then the environment, the TOML file and the
        defaults. Checked, without building a worker."""
        from tidemill.settings.workers import worker_options

        known = dict(self.queues)
        for task in self.tasks.values():
            known.setdefault(task.queue, QueueSettings())
        return worker_options(self.settings, options, known)

    async def work(self, **options: Unpack[WorkerArguments]) -> None:
        """Run a worker on this loop until SIGTERM or SIGINT: the first drains, another a second later
        hands everything back."""
        from tidemill.worker.drain import on_signals

        async with self:
            worker = self.worker(**options)
            with on_signals(worker.stop, worker.stop_now):
                await worker.run()

    def run_worker(self, **options: Unpack[WorkerArguments]) -> None:
        """Run a worker until it is told to stop. Blocks; takes uvloop when it is installed."""
        _best_loop()(self.work(**options))

    async def supervise(self, command: Sequence[str], processes: int, *, until_idle: bool = False) -> None:
        """Keep that many worker processes running until SIGTERM or SIGINT. `command` starts one;
        `tidemill worker --processes N` is the usual way here."""
        from tidemill.worker.drain import on_signals
        from tidemill.worker.supervisor import Supervisor

        async with self:
            supervisor = Supervisor(
                command,
                processes,
                store=self.store,
                entropy=self.entropy,
                signals=self.signals,
                until_idle=until_idle,
            )
            with on_signals(supervisor.stop, supervisor.stop):
                await supervisor.run()

    def _log_as_set(self) -> None:
        """By now a level may have been asked for, on the command line or by the settings."""
        given = self.settings.given("log")
        if given and in_force() is None:
            configure(**given)
        write_events(self.signals)

    def _root(self) -> Store:
        if self._store is None:
            self._store = make_store(self.url, self.clock, self.entropy)
        return self._store

    def _register(self, definition: TaskDefinition) -> Task[Any, Any]:
        refuse_duplicate(self.tasks.get(definition.name), definition)
        self._refuse_strange_pools(definition)
        self.tasks[definition.name] = definition
        if definition.queue not in self.queues and self.settings.queue(definition.queue):
            self.queues[definition.queue] = declared(self.settings, definition.queue)
            self.client.settings_changed()
        return Task(self.client, definition)

    def _refuse_strange_pools(self, task: TaskDefinition) -> None:
        for use in task.pools:
            if self.pools.get(use.pool.name) is not use.pool.settings:
                raise ConfigurationError(
                    f"task {task.name!r}: pool: {use.pool.name!r} is a pool of another application; declare "
                    "it with this one's app.pool(…)"
                )


def _best_loop() -> Callable[[Coroutine[Any, Any, None]], None]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _location(url: StoreUrl) -> str:
    """A relative path is told from the root: in another folder it is another file."""
    return str(StoreUrl(url.scheme, str(Path(url.path).absolute())) if url.path else url)


@contextmanager
def _from_extra(extra: str, package: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ConfigurationError(
            f"url: a store on this server needs the package {package}; run pip install 'tidemill[{extra}]'"
        ) from error


def _unless_the_systems(clock: Clock) -> Clock | None:
    """A server has a clock of its own, the same for all its clients. Virtual time is the program's."""
    return None if isinstance(clock, SystemClock) else clock


def make_store(url: StoreUrl, clock: Clock, entropy: Entropy) -> Store:
    """Imported here and nowhere else: a program pays for the one store it uses."""
    if url.scheme == "memory":
        from tidemill.stores.memory import MemoryStore

        return MemoryStore(clock=clock, entropy=entropy)
    if url.scheme.startswith("redis"):
        with _from_extra("redis", "hiredis"):
            from tidemill.stores.redis import RedisStore

        return RedisStore(url.server, clock=_unless_the_systems(clock), entropy=entropy)
    if url.scheme.startswith("postgres"):
        with _from_extra("postgres", "asyncpg"):
            from tidemill.stores.postgres import PostgresStore

        return PostgresStore(url.server, clock=_unless_the_systems(clock), entropy=entropy)
    from tidemill.stores.sqlite import SqliteStore

    return SqliteStore(url.path, clock=clock, entropy=entropy)
