"""What an application has, and where it works: on one store, by one client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidemill.app.stores import make_store
from tidemill.client.client import Client
from tidemill.client.portal import refuse_running
from tidemill.clock import Clock, Entropy, SystemClock, SystemEntropy
from tidemill.core.job import Job
from tidemill.core.queues import QueueSettings
from tidemill.errors import ConfigurationError
from tidemill.logs import write_events
from tidemill.settings import Settings
from tidemill.settings.queues import declared
from tidemill.settings.store import store_url
from tidemill.tallies.instruments import Instruments
from tidemill.tallies.tally import Tally
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.telemetry.signals import Signals
from tidemill.urls import OWN_STORE, StoreUrl

if TYPE_CHECKING:
    from tidemill.client.schedules import Schedules
    from tidemill.contract.store import Store
    from tidemill.core.pools import PoolSettings
    from tidemill.metrics.exposition import Exposition
    from tidemill.seam.registry import Web
    from tidemill.tasks.classifiers import Classifiers
    from tidemill.tasks.redaction import TaskSecrets
    from tidemill.telling.telling import Telling
    from tidemill.worker.worker import Lifespan

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
        self.url: StoreUrl = OWN_STORE if store is not None and not url else store_url(self.settings)
        self.clock: Clock = clock or SystemClock()
        self.entropy: Entropy = entropy or SystemEntropy()
        self.loaded_as: str | None = None
        """What was typed to load it, such as `module:app`; None when a program imported it."""
        self.tasks: dict[str, TaskDefinition] = {}
        self.queues: dict[str, QueueSettings] = {
            name: declared(self.settings, name) for name in self.settings.queues
        }
        self.pools: dict[str, PoolSettings] = {}
        self._classifiers: Classifiers | None = None
        self._schedules: Schedules | None = None
        self._telling: Telling | None = None
        self._tells = True
        self._web: Web | None = None
        self._secrets: TaskSecrets | None = None
        self.middlewares: list[Middleware] = []
        self.declared_in_code: set[str] = set()
        """The queues of `app.queue(…)`; others may be set in the TOML file only."""
        self._lifespan: Lifespan | None = None
        self._store = store
        self.brings_store = store is not None
        """True when the program made the store itself: `url` then does not lead to it."""
        self.tally = Tally(Instruments(self._wall), self._new_id)
        """What this process counts, and the store is told."""
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
        """What in jobs is secret, by the types of their tasks and by the setting web.redact."""
        if self._secrets is None:
            from tidemill.tasks.redaction import TaskSecrets

            self._secrets = TaskSecrets(self.tasks, self.settings.value("web.redact"))
        return self._secrets

    @property
    def store(self) -> Store:
        """The store itself, for reading (`await app.store.find(…)`) inside `async with app`."""
        return self.client.store_here() or self._root()

    async def __aenter__(self) -> Self:
        store = await self.client.store()
        if self._tells:
            here = asyncio.get_running_loop()
            self._counting[here] = asyncio.create_task(self.tally.keep_telling(store), name="tidemill tally")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if counting := self._counting.pop(asyncio.get_running_loop(), None):
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)
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
        registered before and after go there too. `mind_waiting` may end a wait for a job's result. Nobody
        outside is told of what happens there."""
        before = self._store, self.url, self.clock, self.entropy, self._lifespan, self._tells
        self._store, self.url, self.clock, self.entropy = store, url, clock, entropy
        self._tells = False
        self._lifespan = lifespan or self._lifespan
        try:
            with self.client.moved(clock, entropy, mind_waiting):
                yield
        finally:
            self._store, self.url, self.clock, self.entropy, self._lifespan, self._tells = before

    def run_sync(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine of this application from a program without an event loop:
        `app.run_sync(app.inspect.pause("feeds"))`. Refused on an event loop's thread: await it there."""
        refuse_running(work)
        return self.client.run_sync(lambda: work)

    def _wall(self) -> float:
        return self.clock.wall()

    def _new_id(self) -> str:
        return self.entropy.new_id()

    @property
    def shares_store(self) -> bool:
        """False when the jobs are in the memory of one process."""
        if not self.brings_store:
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
        """A store in the memory of a worker's child would take the handler's jobs, and lose them."""
        from tidemill.worker.parent import is_child

        if is_child():
            raise ConfigurationError(
                "url: memory:// keeps jobs in the memory of the worker's process, and this handler runs in "
                "another process, which cannot reach them; use sqlite://, or a task without isolate=True"
            )
