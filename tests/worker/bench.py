"""A worker on a memory store, in virtual time: a test waits for minutes in milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from tidemill.core.claims import ClaimRequest, Settled, Settlement
from tidemill.core.job import Group, Job, NewJob
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import Verdict
from tidemill.core.states import FINAL
from tidemill.errors import StoreUnavailable
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.batches import define_batch
from tidemill.tasks.costs import needs_of
from tidemill.tasks.definition import Middleware, TaskDefinition, define
from tidemill.tasks.pools import Pool, declared_pool
from tidemill.telemetry.events import Event
from tidemill.telemetry.signals import Signals
from tidemill.testing.manual import SeededEntropy
from tidemill.testing.virtual import VirtualClock
from tidemill.worker import Worker, WorkerOptions
from tidemill.worker.emitter import Emitter
from tidemill.worker.runners.isolated import IsolatedRunner, Isolation
from tidemill.worker.spending import Metering

E = TypeVar("E", bound=Event)
NO_POOLS = Metering({}, cast("Any", None), lambda: 0.0, cast("Any", None))


class Bench:
    """One store, some tasks, and workers on it, whose `events` are kept."""

    def __init__(self, store: MemoryStore, clock: VirtualClock) -> None:
        self.store, self.clock = store, clock
        self.entropy = SeededEntropy(1)
        self.tasks: dict[str, TaskDefinition] = {}
        self.pools: dict[str, PoolSettings] = {}
        self.running: list[asyncio.Task[None]] = []
        self._jobs = 0
        self.events: list[Event] = []
        self.signals = Signals()
        self.signals.subscribe(self.events.append)

    def task(self, handler: Callable[..., Any], **options: Any) -> None:
        definition = define(handler, name=handler.__name__, **options)
        self.tasks[definition.name] = definition

    def batch_task(self, handler: Callable[..., Any], **options: Any) -> None:
        definition = define_batch(handler, name=handler.__name__, **options)
        self.tasks[definition.name] = definition

    async def items(self, task: str, *items: Any, **options: Any) -> list[str]:
        """Jobs of a batch task, one for each item."""
        payloads = [msgspec.json.encode({"item": item}) for item in items]
        return [await self.enqueue(task, payload, **options) for payload in payloads]

    async def pool(self, name: str, *limits: Limit, **options: Any) -> Pool:
        pool = declared_pool(name, limits, options)
        self.pools[name] = pool.settings
        await self.store.declare_pools({name: pool.settings})
        return pool

    async def used(self, pool: str, key: str | None = None) -> dict[str, float]:
        """What counts as used of each limit."""
        views = [view for view in await self.store.pools() if (view.name, view.key) == (pool, key)]
        return {limit.name: limit.used for view in views for limit in view.limits}

    async def ended(self, *jobs: str) -> None:
        """When all of them have. In virtual time looking costs nothing."""
        while any(job is None or job.state not in FINAL for job in await self.store.get(jobs)):  # noqa: ASYNC110 - above
            await asyncio.sleep(0.1)

    async def enqueue(self, task: str, payload: bytes = b"{}", queue: str = "default", **options: Any) -> str:
        self._jobs += 1
        definition = self.tasks.get(task)
        if definition is not None and definition.pools:
            args, kwargs = definition.payload.decode(payload)
            options["needs"] = needs_of(definition, definition.payload.by_name(args, kwargs))
        if definition is not None and definition.batch is not None:
            options["batching"] = definition.batch.together
        job = NewJob(id=f"job-{self._jobs}", task=task, payload=payload, **options)
        [[answer]] = await self.store.insert([Group(queue, (job,))])
        assert answer.verdict is Verdict.ACCEPTED, answer
        return job.id

    def worker(
        self,
        tasks: Mapping[str, TaskDefinition] | None = None,
        store: Any = None,
        lifespan: Any = None,
        middleware: tuple[Middleware, ...] = (),
        runner: Callable[[int], Isolation] | None = None,
        **options: Any,
    ) -> Worker:
        isolated = runner is not None
        settings: dict[str, Any] = {"heartbeat_thread": False, "isolation": isolated, **options}
        return Worker(
            store or self.store,
            self.tasks if tasks is None else tasks,
            self.pools,
            options=WorkerOptions(**settings),
            clock=self.clock,
            entropy=self.entropy,
            signals=self.signals,
            lifespan=lifespan,
            middleware=middleware,
            isolation=runner or IsolatedRunner,
        )

    def start(self, worker: Worker) -> asyncio.Task[None]:
        task = asyncio.create_task(worker.run())
        self.running.append(task)
        return task

    async def run_until_idle(self, **options: Any) -> Worker:
        worker = self.worker(until_idle=True, **options)
        await worker.run()
        return worker

    def told(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def emitter(self, worker: str = "w") -> Emitter:
        return Emitter(self.signals, worker, self.clock, asyncio.get_running_loop().time())

    async def job(self, id: str) -> Job:  # noqa: A002 - the word for it
        [job] = await self.store.get([id])
        assert job is not None
        return job


class Unreliable(MemoryStore):
    """The same truth through a bad line: `down` refuses calls, `lose` drops replies after the fact,
    `slow` is how long a trip takes, `queued` how long the store waits before it decides, and says so."""

    def __init__(self, store: MemoryStore) -> None:
        self.__dict__.update(store.another().__dict__)
        self.down = False
        self.lose = 0
        self.slow = self.queued = 0.0
        self.requests: list[ClaimRequest | None] = []

    async def settle(self, settlements: Sequence[Settlement], request: ClaimRequest | None = None) -> Settled:
        self.requests.append(request)
        if self.slow or self.queued:
            await asyncio.sleep(self.slow + self.queued)
        if self.down:
            raise StoreUnavailable("down")
        settled = await super().settle(settlements, request)
        if self.lose:
            self.lose -= 1
            raise StoreUnavailable("the reply was lost")
        if settled.claims is not None:
            settled.claims.after(self.queued)
        return settled


Scenario = Callable[[Bench], Coroutine[Any, Any, None]]
Virtually = Callable[[Scenario], None]
