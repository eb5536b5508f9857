"""A worker: claims jobs, runs them, says how they ended, and does its share of the chores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from tidemill.clock import Clock, Entropy
from tidemill.contract.store import Store
from tidemill.core.pools import PoolSettings
from tidemill.core.states import State
from tidemill.tallies.instruments import Instruments
from tidemill.tallies.tally import Tally
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.telemetry.events import WorkerStarted, WorkerStopped
from tidemill.telemetry.signals import Signals
from tidemill.worker.crew import Crew
from tidemill.worker.options import FreshId, WorkerOptions
from tidemill.worker.questions import only_if_it_answers
from tidemill.worker.runners.isolated import IsolatedRunner, Isolation
from tidemill.worker.runners.main_module import refuse_worker_in_child
from tidemill.worker.stats import Stats

if TYPE_CHECKING:
    from tidemill.schedules.schedule import Wanted
    from tidemill.tasks.redaction import TaskSecrets
    from tidemill.telling.telling import Telling

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


class Worker:
    """Built anywhere, run once on an event loop. The store is opened and closed by its owner.

    `pools` and `schedules` are those the application declared. `lifespan` opens what handlers share; what
    it yields is their `ctx.state`. `signals` are told what happens; `tally` is what the process counts;
    `location` is how they are told where
    the store is, without secrets. `isolation` makes the runner of isolated jobs, given how many may run at
    once. `telling` is what is told to whom, None for a worker that tells nobody.
    `secrets` says what is taken out of the texts of events.
    `started` is set when the lifespan is open and jobs are about to be asked for.
    """

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition],
        pools: Mapping[str, PoolSettings] | None = None,
        *,
        schedules: Mapping[str, Wanted] | None = None,
        options: WorkerOptions,
        clock: Clock,
        entropy: Entropy,
        signals: Signals | None = None,
        tally: Tally | None = None,
        location: str | None = None,
        lifespan: Lifespan | None = None,
        middleware: Sequence[Middleware] = (),
        isolation: Callable[[int], Isolation] = IsolatedRunner,
        telling: Telling | None = None,
        secrets: TaskSecrets | None = None,
    ) -> None:
        self._store, self._tasks, self._options = store, tasks, options
        self._pools: Mapping[str, PoolSettings] = {} if pools is None else pools
        self._schedules: Mapping[str, Wanted] = {} if schedules is None else schedules
        self._clock, self._entropy = clock, entropy
        self._lifespan: Lifespan = lifespan or nullcontext
        self._middleware, self._isolation, self._telling = middleware, isolation, telling
        self._secrets = secrets
        self._signals, self._location = signals or Signals(), location
        self._tally = tally or Tally(Instruments(clock.wall), entropy.new_id)
        self._crew: Crew | None = None
        self._stopping = self._hurried = False
        self.id = _fresh(options.id, entropy)
        self.stats = Stats(since=clock.wall())
        self.started = asyncio.Event()

    async def run(self) -> None:
        """Until stopped and drained, or, with `until_idle`, until there is nothing to do."""
        refuse_worker_in_child()
        async with self._lifespan() as state:
            self._crew = Crew(
                self._store,
                self._tasks,
                self._options,
                self.id,
                self.stats,
                pools=self._pools,
                schedules=self._schedules,
                clock=self._clock,
                entropy=self._entropy,
                signals=self._signals,
                tally=self._tally,
                isolation=self._isolation,
                middleware=self._middleware,
                state=state,
                telling=self._telling,
                secrets=self._secrets,
            )
            if self._stopping:
                self._crew.stop(hurry=self._hurried)
            self._signals.emit(
                WorkerStarted(
                    worker=self.id,
                    queues=dict(self._options.queues),
                    concurrency=self._options.concurrency,
                    store=self._location,
                )
            )
            self.started.set()
            await self._crew.run()
            self._signals.emit(self._stopped(await self._left_over()))

    def stop(self) -> None:
        """Drain: claim nothing more, let running jobs finish within the grace time."""
        self._stopping = True
        if self._crew is not None:
            self._crew.stop(hurry=False)

    def stop_now(self) -> None:
        """Hand everything back at once, uncharged."""
        self._stopping = self._hurried = True
        if self._crew is not None:
            self._crew.stop(hurry=True)

    def _stopped(self, left: _Left) -> WorkerStopped:
        stats = self.stats
        return WorkerStopped(
            worker=self.id,
            done=stats.done,
            failed=stats.failed,
            retried=stats.retried,
            snoozed=stats.snoozed,
            crashed=stats.crashed,
            released=stats.released,
            lost=stats.lost,
            scheduled=left.scheduled,
            ready=left.ready,
            paused=left.paused,
        )

    async def _left_over(self) -> _Left:
        """Who ran until idle wonders why a job did not: it may not be due, or its queue is paused."""
        if not (self._options.until_idle and self._signals.wants(WorkerStopped)):
            return _Left()
        async with only_if_it_answers():
            counts = await self._store.counts()
            mine = [counts.get(queue, {}) for queue in self._options.queues]
            return _Left(
                scheduled=sum(states.get(State.SCHEDULED, 0) for states in mine),
                ready=sum(states.get(State.READY, 0) for states in mine),
                paused=await self._paused(),
            )
        return _Left()

    async def _paused(self) -> tuple[str, ...] | None:
        now, queues = self._clock.wall(), self._options.queues
        infos = [info for info in await self._store.queues() if info.name in queues]
        return tuple(info.name for info in infos if info.pause and info.pause.closed(now)) or None


class _Left(NamedTuple):
    """What `until_idle` left of the worker's queues; None where nobody asked."""

    scheduled: int | None = None
    ready: int | None = None
    paused: tuple[str, ...] | None = None


def _fresh(given: str | None, entropy: Entropy) -> str:
    made = entropy.new_id()
    if given is None or isinstance(given, FreshId):
        return str(given or made)  # a plain one: stores write it
    return f"{given}-{made[-12:]}"
