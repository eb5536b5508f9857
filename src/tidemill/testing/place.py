"""Where an application works during a test: a store in memory that forgets nothing, and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace as with_changes
from datetime import timedelta
from typing import Any, TypeVar

from msgspec.structs import replace

from tidemill.app import Tidemill
from tidemill.clock import SystemClock
from tidemill.contract.jobs import Pruned
from tidemill.core.claims import ClaimRequest, Settled, Settlement
from tidemill.core.courses import ADVANCING, Agenda, Kind
from tidemill.core.job import Job
from tidemill.core.numbers import is_number
from tidemill.core.queues import Retention
from tidemill.engine.claim import next_due
from tidemill.errors import ConfigurationError, ResultTimeout
from tidemill.inspect.causes import Code
from tidemill.inspect.explanation import explain
from tidemill.inspect.facts import gather
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.current import CURRENT
from tidemill.testing.apart import call_apart
from tidemill.testing.manual import SeededEntropy
from tidemill.testing.virtual import START, VirtualLoop
from tidemill.testing.wording import not_done
from tidemill.times import in_seconds
from tidemill.urls import StoreUrl
from tidemill.worker.translate import Ends, timed_out

T = TypeVar("T")

_FOREVER = Retention()
_STOPS_A_KIT = (Code.PAUSED, Code.PREDECESSOR, Code.EXPIRED, *(c for c in Code if c.startswith("pool_")))
_AT_LEAST = 1e-6
"""What a wall time of today cannot tell apart: adding less might add nothing."""


class _Unset:
    """Stands for an argument that was not given; shown in signatures."""

    def __repr__(self) -> str:
        return "<not given>"


_SYSTEM = SystemClock()
UNSET: Any = _Unset()


class KitClock:
    """Stands still unless it is advanced. On a virtual loop it moves with the loop's time as well."""

    boot_id = "test"

    def __init__(self, start: float = START, loop: VirtualLoop | None = None) -> None:
        self._start, self._passed = start, 0.0
        self._loop = loop

    def wall(self) -> float:
        return self._start + self.boot()

    def boot(self) -> float:
        loop = self._loop or self._virtual_loop()
        return self._passed + (0.0 if loop is None else loop.time())

    @property
    def moves(self) -> bool:
        """Whether time passes while somebody waits."""
        return self._loop is not None

    def advance(self, seconds: float | timedelta) -> None:
        self._passed += forward(seconds)

    def advance_to(self, wall: float) -> None:
        self._passed += max(0.0, wall - self.wall())
        if self.wall() < wall:
            self._passed += _AT_LEAST

    def _virtual_loop(self) -> VirtualLoop | None:
        """The test's loop, once it runs: from then on its time is part of this clock's."""
        loop = asyncio._get_running_loop()  # noqa: SLF001 - None where there is none
        if isinstance(loop, VirtualLoop):
            self._loop = loop
            self._passed -= loop.time()
        return self._loop


def forward(seconds: float | timedelta) -> float:
    """A duration by which a test may move on."""
    length = in_seconds(seconds)
    if not is_number(length, 0):
        raise ValueError(
            f"seconds: time only goes forward, by a number of seconds or a timedelta, not by {seconds!r}"
        )
    return length


class KeepingStore(MemoryStore):
    """Ended jobs stay, however much time a test lets pass: it wants to look at them afterwards. Jobs that
    wait for company wait no time."""

    async def settle(self, settlements: Sequence[Settlement], request: ClaimRequest | None = None) -> Settled:
        settled = await super().settle(settlements, request)
        if (claims := settled.claims) is not None and claims.lingers and not claims.jobs:
            with self.verb() as records:
                clock, busy = records.clock, any(records.running.every())
            if isinstance(clock, KitClock) and not clock.moves and not busy:
                clock.advance(claims.next_due or 0.0)
                claims.more = True
        return settled

    async def prune(self, limit: int = 1000) -> Pruned:
        await self.declare(
            {
                queue.name: replace(
                    queue.declared, keep_done=_FOREVER, keep_failed=_FOREVER, keep_cancelled=_FOREVER
                )
                for queue in await self.queues()
            }
        )
        return await super().prune(limit)


class NotRun(AssertionError, ResultTimeout):
    """A test waits for a job, and no worker is there that could run it."""


class Place:
    """An application's store, clock and randomness for one test."""

    def __init__(self, app: Tidemill, clock: KitClock, *, seed: int = 0, state: Any = UNSET) -> None:
        self.app, self.clock = app, clock
        self._entropy = SeededEntropy(seed)
        self._store = KeepingStore(clock=clock, entropy=self._entropy)
        self.look = self._store.another()  # never closed, whatever the application does with its own
        self._state = state

    def moved(self) -> AbstractContextManager[None]:
        lifespan = None if self._state is UNSET else _yields(self._state)
        return self.app.moved(
            store=self._store,
            url=StoreUrl("memory"),
            clock=self.clock,
            entropy=self._entropy,
            lifespan=lifespan,
            mind_waiting=self._mind_waiting,
        )

    def next_due(self) -> float | None:
        """Seconds until something may start that cannot now: a scheduled job, one of a paused queue, or
        one that waits for a pool or for company, a tick of a schedule, or a flow whose time is over."""
        with self.look.verb() as records:
            now, boot = records.clock.wall(), records.clock.boot()
            wait = next_due(records.queues.values(), now, boot)
        waits = [wait, *(agenda.next_due for agenda in self._agendas())]
        return min((max(one, _AT_LEAST) for one in waits if one is not None), default=None)

    def has_agenda(self) -> bool:
        """Whether a flow or a schedule waits to be advanced, or to be declared: workers do that."""
        names = list(self.app.schedules.declared)
        undeclared = None in at_once(self.look.courses(Kind.SCHEDULE, names))
        return undeclared or any(agenda.stirred for agenda in self._agendas())

    def _agendas(self) -> list[Agenda]:
        return [at_once(self.look.agenda(kind, 1)) for kind in ADVANCING]

    def _mind_waiting(self, job: Job) -> None:
        if not at_once(self.look.workers()):
            raise NotRun(self.not_done(job))

    def not_done(self, job: Job) -> str:
        """Why a job has no result, and what in the test would give it one."""
        causes = explain(at_once(gather(self.look, self.app.tasks, job.id))).causes
        stops = [cause.sentence for cause in causes if cause.code in _STOPS_A_KIT]
        return not_done(job, self.app.tasks.get(job.task), self.clock.wall(), stops)

    @contextmanager
    def handlers_on_this_thread(self) -> Iterator[None]:
        tasks = self.app.tasks
        before = dict(tasks)
        tasks.update({name: self._on_this_thread(task) for name, task in before.items() if not task.is_async})
        try:
            yield
        finally:
            tasks.update(before)

    def _on_this_thread(self, task: TaskDefinition) -> TaskDefinition:
        async def call(*args: Any, **kwargs: Any) -> Any:
            began = _SYSTEM.boot()
            try:
                result = call_apart(task.handler, *args, **kwargs)
            except Exception:
                self._refuse_late(task, _SYSTEM.boot() - began)
                raise
            self._refuse_late(task, _SYSTEM.boot() - began)
            return result

        return with_changes(task, handler=call, is_async=True)

    def _refuse_late(self, task: TaskDefinition, took: float) -> None:
        """A worker would not have waited for it. Here it is asked afterwards: nothing else could run
        meanwhile, and in virtual time none has passed."""
        job = CURRENT.get()
        if job is not None and took > (seconds := job.timeout or task.timeout):
            chance = self._entropy.chance()
            raise Ends(timed_out(seconds, task.retry, job.attempt, job.priority, chance))


def check_app(app: Any) -> None:
    if not isinstance(app, Tidemill):
        raise ConfigurationError(
            f"app: must be the application itself, a Tidemill(…), is {app!r}; import it from its module"
        )


def at_once(verb: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that awaits nothing, which no verb of the memory store does."""
    try:
        verb.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    verb.close()
    raise RuntimeError("the store of a test kit waited for something")


def _yields(state: Any) -> Callable[[], Any]:
    @asynccontextmanager
    async def lifespan() -> Any:
        yield state

    return lifespan
