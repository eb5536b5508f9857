"""A worker on a memory store, in virtual time: a test waits for minutes in milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from tidemill.core.claims import ClaimRequest, Settlement, SettleResult
from tidemill.core.jobs import Job, JobGroup, NewJob
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import InsertVerdict
from tidemill.core.states import FINAL
from tidemill.errors import StoreUnavailable
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.batches import make_batch_definition
from tidemill.tasks.costs import compute_needs
from tidemill.tasks.definition import Middleware, TaskDefinition, make_task_definition
from tidemill.tasks.pools import Pool, declare_pool
from tidemill.telemetry.events import Event
from tidemill.telemetry.listeners import Signals
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.worker import Worker, WorkerOptions
from tidemill.worker.event_emitter import EventEmitter
from tidemill.worker.isolation.runner import IsolatedRunner, Isolation
from tidemill.worker.usage import AttemptEnvironment

E = TypeVar("E", bound=Event)
NO_POOLS = AttemptEnvironment({}, cast("Any", None), lambda: 0.0, cast("Any", None))


class Bench:
    """A memory store, tasks, and workers on it; `events` has the events of the workers."""

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
        definition = make_task_definition(handler, name=handler.__name__, **options)
        self.tasks[definition.name] = definition

    def batch_task(self, handler: Callable[..., Any], **options: Any) -> None:
        definition = make_batch_definition(handler, name=handler.__name__, **options)
        self.tasks[definition.name] = definition

    async def items(self, task: str, *items: Any, **options: Any) -> list[str]:
        """Enqueues one job of a batch task for each item."""
        payloads = [msgspec.json.encode({"item": item}) for item in items]
        return [await self.enqueue(task, payload, **options) for payload in payloads]

    async def pool(self, name: str, *limits: Limit, **options: Any) -> Pool:
        pool = declare_pool(name, limits, options)
        self.pools[name] = pool.settings
        await self.store.declare_pools({name: pool.settings})
        return pool

    async def used(self, pool: str, key: str | None = None) -> dict[str, float]:
        """Returns the used units of each limit."""
        views = [view for view in await self.store.pools() if (view.name, view.key) == (pool, key)]
        return {limit.name: limit.used for view in views for limit in view.limits}

    async def ended(self, *jobs: str) -> None:
        """Returns when all jobs have ended. Polling costs nothing in virtual time."""
        while any(job is None or job.state not in FINAL for job in await self.store.get(jobs)):  # noqa: ASYNC110 - above
            await asyncio.sleep(0.1)

    async def enqueue(self, task: str, payload: bytes = b"{}", queue: str = "default", **options: Any) -> str:
        self._jobs += 1
        definition = self.tasks.get(task)
        if definition is not None and definition.pools:
            args, kwargs = definition.payload.decode(payload)
            options["needs"] = compute_needs(definition, definition.payload.by_name(args, kwargs))
        if definition is not None and definition.batch is not None:
            options["batching"] = definition.batch.policy
        job = NewJob(id=f"job-{self._jobs}", task=task, payload=payload, **options)
        [[answer]] = await self.store.insert([JobGroup(queue, (job,))])
        assert answer.verdict is InsertVerdict.ACCEPTED, answer
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

    def events_of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def emitter(self, worker: str = "w") -> EventEmitter:
        return EventEmitter(self.signals, worker, self.clock, asyncio.get_running_loop().time())

    async def job(self, id: str) -> Job:  # noqa: A002 - the word for it
        [job] = await self.store.get([id])
        assert job is not None
        return job


class Unreliable(MemoryStore):
    """A store behind a bad network: `down` refuses requests, `lose` drops replies after the commit, `slow`
    is the length of a round trip, `queued` is how long the store waits before it decides (and reports
    it)."""

    def __init__(self, store: MemoryStore) -> None:
        self.__dict__.update(store.new_handle().__dict__)
        self.down = False
        self.lose = 0
        self.slow = self.queued = 0.0
        self.requests: list[ClaimRequest | None] = []

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
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
