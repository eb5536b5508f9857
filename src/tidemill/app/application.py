"""Base class of the application: settings, store, client and life cycle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidemill.app.stores import make_store
from tidemill.client.background_loop import refuse_run_sync_on_loop
from tidemill.client.client import Client
from tidemill.clock import Clock, Entropy, SystemClock, SystemEntropy
from tidemill.core.jobs import Job
from tidemill.core.queues import QueueSettings
from tidemill.core.validation import problem_with_name
from tidemill.errors import ConfigurationError
from tidemill.logs import write_events
from tidemill.metrics.instruments import MetricRegistry
from tidemill.metrics.snapshots import SnapshotWriter
from tidemill.settings.settings import Settings, resolve_store_url
from tidemill.store_url import CUSTOM_STORE, StoreUrl
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.telemetry.listeners import Signals

if TYPE_CHECKING:
    from tidemill.client.schedules import Schedules
    from tidemill.contract.store import Store
    from tidemill.core.pools import PoolSettings
    from tidemill.http_routes.registry import WebRegistry
    from tidemill.inspect.metrics_exposition import Exposition
    from tidemill.notifications.config import NotificationConfig
    from tidemill.tasks.periodic import PeriodicFunction
    from tidemill.tasks.pools import Classifiers
    from tidemill.tasks.redaction import TaskSecrets
    from tidemill.worker.worker import Lifespan


def resolve_queue_settings(
    settings: Settings, name: str, code: Mapping[str, Any] | None = None
) -> QueueSettings:
    """Returns the settings of a queue: those in `code` win over the environment, the TOML file and the
    defaults. Raises ConfigurationError with the field if a value is invalid."""
    if problem := problem_with_name("queue", name):
        raise ConfigurationError(problem)
    merged = QueueSettings(**settings.queue(name) | dict(code or {}))
    if problem := merged.problem():
        raise ConfigurationError(f"queue {name!r}: {problem}")
    settings.add_arguments({f"queues.{name}.{key}": value for key, value in (code or {}).items()})
    return merged


R = TypeVar("R")


class Application:
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
        self.url: StoreUrl = (
            CUSTOM_STORE if store is not None and not url else resolve_store_url(self.settings)
        )
        self.clock: Clock = clock or SystemClock()
        self.entropy: Entropy = entropy or SystemEntropy()
        self.application_spec: str | None = None
        """The text that loaded it on the command line, such as `module:app`; None if it was imported."""
        self.tasks: dict[str, TaskDefinition] = {}
        self.queues: dict[str, QueueSettings] = {
            name: resolve_queue_settings(self.settings, name) for name in self.settings.queues
        }
        self.pools: dict[str, PoolSettings] = {}
        self._classifiers: Classifiers | None = None
        self._schedules: Schedules | None = None
        self._notifications: NotificationConfig | None = None
        self._notifies = True
        self._web: WebRegistry | None = None
        self._secrets: TaskSecrets | None = None
        self.middlewares: list[Middleware] = []
        self.periodics: dict[str, PeriodicFunction[Any]] = {}
        self.declared_in_code: set[str] = set()
        """The queues of `app.queue(…)`; others may be set in the TOML file only."""
        self._lifespan: Lifespan | None = None
        self._store = store
        self.has_own_store = store is not None
        """True if the program created the store itself: `url` does not lead to it then."""
        self.snapshot_writer = SnapshotWriter(MetricRegistry(self._wall), self._new_id)
        """Writes the metrics of this process to the store."""
        self._counting: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        self._exposition: Exposition | None = None
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
    def secrets(self) -> TaskSecrets:
        """The object that finds the secret fields of jobs, by the annotations of their tasks and the setting
        web.redact."""
        if self._secrets is None:
            from tidemill.tasks.redaction import TaskSecrets

            self._secrets = TaskSecrets(self.tasks, self.settings.value("web.redact"))
        return self._secrets

    @property
    def store(self) -> Store:
        """The store, for reading (`await app.store.find(…)`) inside `async with app`."""
        return self.client.current_store() or self._root()

    async def __aenter__(self) -> Self:
        store = await self.client.store()
        if self._notifies:
            loop = asyncio.get_running_loop()
            self._counting[loop] = asyncio.create_task(
                self.snapshot_writer.write_periodically(store), name="tidemill metrics"
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if counting := self._counting.pop(asyncio.get_running_loop(), None):
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)
        await self.close()

    async def close(self) -> None:
        """Closes the store after all accepted requests are answered. You may call it again; the next use of
        the application opens the store again."""
        await self.client.close()

    def close_sync(self) -> None:
        """`close` for programs without an event loop."""
        self.client.close_sync()

    @contextmanager
    def use_store(
        self,
        *,
        store: Store,
        url: StoreUrl,
        clock: Clock,
        entropy: Entropy,
        lifespan: Lifespan | None = None,
        on_wait: Callable[[Job], None],
    ) -> Iterator[None]:
        """Context manager that makes the application use another store inside the block, for
        `tidemill.testing`.

        Inside the block the application sends no notifications. `on_wait` is called while a caller waits for
        a job; it may raise to end the wait."""
        before = self._store, self.url, self.clock, self.entropy, self._lifespan, self._notifies
        self._store, self.url, self.clock, self.entropy = store, url, clock, entropy
        self._notifies = False
        self._lifespan = lifespan or self._lifespan
        try:
            with self.client.use_new_sessions(clock, entropy, on_wait):
                yield
        finally:
            self._store, self.url, self.clock, self.entropy, self._lifespan, self._notifies = before

    def run_sync(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine without an event loop, and returns its result:
        `app.run_sync(app.inspect.pause("feeds"))`.

        On the thread of a running event loop it raises ConfigurationError; await the coroutine there."""
        refuse_run_sync_on_loop(work)
        return self.client.run_sync(lambda: work)

    def _wall(self) -> float:
        return self.clock.wall()

    def _new_id(self) -> str:
        return self.entropy.new_id()

    @property
    def shares_store(self) -> bool:
        """True if other processes can use the store. False for a store in the memory of this process."""
        if not self.has_own_store:
            return self.url.scheme != "memory"
        from tidemill.stores.memory import MemoryStore

        return not isinstance(self._store, MemoryStore)

    def _root(self) -> Store:
        if not self.shares_store:
            self._refuse_in_child()
        if self._store is None:
            self._store = make_store(self.url, self.clock, self.entropy)
        return self._store

    def _refuse_in_child(self) -> None:
        """Raises ConfigurationError in a child process of a worker, where jobs in a memory store would be
        lost."""
        from tidemill.worker.isolation.bootstrap import is_child

        if is_child():
            raise ConfigurationError(
                "url: memory:// keeps jobs in the memory of the worker's process, and this handler runs in "
                "another process, which cannot reach them; use sqlite://, or a task without isolate=True"
            )
