"""The environment of an application during a test: a memory store that never prunes, and its clock."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace as with_changes
from typing import Any, TypeVar

from msgspec.structs import replace

from tidemill.app import Tidemill
from tidemill.clock import SystemClock
from tidemill.contract.jobs import PruneResult
from tidemill.core.claims import ClaimRequest, Settlement, SettleResult
from tidemill.core.documents import ADVANCED_KINDS, DocumentKind, Worklist
from tidemill.core.jobs import Job
from tidemill.core.queues import Retention
from tidemill.engine.claim import next_due
from tidemill.errors import ConfigurationError, ResultTimeout
from tidemill.inspect.causes import CauseCode
from tidemill.inspect.explanation import explain
from tidemill.inspect.explanation_inputs import load_inputs
from tidemill.store_url import StoreUrl
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.current_attempt import CURRENT_ATTEMPT
from tidemill.testing.clocks import MIN_ADVANCE_SECONDS, KitClock, SeededEntropy
from tidemill.testing.failure_messages import format_not_done
from tidemill.testing.virtual_loop import call_without_loop
from tidemill.worker.outcomes import OutcomeSignal, timeout_outcome

T = TypeVar("T")

_KEEP_FOREVER = Retention()
_BLOCKING_CODES = (
    CauseCode.PAUSED,
    CauseCode.PREDECESSOR,
    CauseCode.EXPIRED,
    *(c for c in CauseCode if c.startswith("pool_")),
)


class _UnsetArgument:
    """The type of a default value that means "not given". Its repr keeps signatures in the documentation
    readable."""

    def __repr__(self) -> str:
        return "<not given>"


_SYSTEM_CLOCK = SystemClock()
UNSET: Any = _UnsetArgument()


class RetainingMemoryStore(MemoryStore):
    """A memory store that keeps all finished jobs, so that a test can inspect them later. If a batch waits
    for more jobs while no job runs, the store advances the kit's clock to the end of the wait."""

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
        settled = await super().settle(settlements, request)
        if (claims := settled.claims) is not None and claims.batch_waits and not claims.jobs:
            with self.verb() as records:
                clock, busy = records.clock, any(records.running.every())
            if isinstance(clock, KitClock) and not clock.moves and not busy:
                clock.advance(claims.next_due or 0.0)
                claims.more = True
        return settled

    async def prune(self, limit: int = 1000) -> PruneResult:
        await self.declare(
            {
                queue.name: replace(
                    queue.declared,
                    keep_done=_KEEP_FOREVER,
                    keep_failed=_KEEP_FOREVER,
                    keep_cancelled=_KEEP_FOREVER,
                )
                for queue in await self.queues()
            }
        )
        return await super().prune(limit)


class JobNotRun(AssertionError, ResultTimeout):
    """Raised if a test waits for a job while no worker exists to run it."""


class KitEnvironment:
    """An application's store, clock and randomness for one test."""

    def __init__(self, app: Tidemill, clock: KitClock, *, seed: int = 0, state: Any = UNSET) -> None:
        self.app, self.clock = app, clock
        self._entropy = SeededEntropy(seed)
        self._store = RetainingMemoryStore(clock=clock, entropy=self._entropy)
        # Never closed, even if the application closes its own handle.
        self.store_handle = self._store.new_handle()
        self._state = state

    def use_store(self) -> AbstractContextManager[None]:
        lifespan = None if self._state is UNSET else _lifespan_of(self._state)
        return self.app.use_store(
            store=self._store,
            url=StoreUrl("memory"),
            clock=self.clock,
            entropy=self._entropy,
            lifespan=lifespan,
            on_wait=self._on_wait,
        )

    def next_due(self) -> float | None:
        """Returns the seconds until another job can start or a flow or schedule is due; None if nothing is
        due."""
        with self.store_handle.verb() as records:
            now, boot = records.clock.wall(), records.clock.boot()
            wait = next_due(records.queues.values(), now, boot)
        waits = [wait, *(worklist.next_due for worklist in self._load_worklists())]
        return min(
            (max(seconds, MIN_ADVANCE_SECONDS) for seconds in waits if seconds is not None), default=None
        )

    def has_worklist_items(self) -> bool:
        """True if a worker has work although no job is ready: a flow or schedule has to be advanced, or a
        schedule of the application is not in the store yet."""
        names = list(self.app.schedules.declared)
        undeclared = None in run_without_waiting(self.store_handle.documents(DocumentKind.SCHEDULE, names))
        return undeclared or any(worklist.work_items for worklist in self._load_worklists())

    def _load_worklists(self) -> list[Worklist]:
        return [run_without_waiting(self.store_handle.worklist(kind, 1)) for kind in ADVANCED_KINDS]

    def _on_wait(self, job: Job) -> None:
        if not run_without_waiting(self.store_handle.workers()):
            raise JobNotRun(self.not_done(job))

    def not_done(self, job: Job) -> str:
        """Explains why a job has no result, and how the test can run it."""
        causes = explain(run_without_waiting(load_inputs(self.store_handle, self.app.tasks, job.id))).causes
        stops = [cause.sentence for cause in causes if cause.code in _BLOCKING_CODES]
        return format_not_done(job, self.app.tasks.get(job.task), self.clock.wall(), stops)

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
            began = _SYSTEM_CLOCK.boot()
            try:
                result = call_without_loop(task.handler, *args, **kwargs)
            except Exception:
                self._check_timeout(task, _SYSTEM_CLOCK.boot() - began)
                raise
            self._check_timeout(task, _SYSTEM_CLOCK.boot() - began)
            return result

        return with_changes(task, handler=call, is_async=True)

    def _check_timeout(self, task: TaskDefinition, took: float) -> None:
        """Fails the attempt if the handler took longer than its timeout; `took` is in real seconds. It is
        called after a sync handler has returned."""
        job = CURRENT_ATTEMPT.get()
        if job is not None and took > (seconds := job.timeout or task.timeout):
            chance = self._entropy.chance()
            raise OutcomeSignal(timeout_outcome(seconds, task.retry, job.attempt, job.priority, chance))


def check_app(app: Any) -> None:
    if not isinstance(app, Tidemill):
        raise ConfigurationError(
            f"app: must be the application itself, a Tidemill(…), is {app!r}; import it from its module"
        )


def run_without_waiting(verb: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that never suspends, such as a method of the memory store. Raises
    RuntimeError if it suspends."""
    try:
        verb.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    verb.close()
    raise RuntimeError("the store of a test kit waited for something")


def _lifespan_of(state: Any) -> Callable[[], Any]:
    @asynccontextmanager
    async def lifespan() -> Any:
        yield state

    return lifespan
