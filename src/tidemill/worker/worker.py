"""The worker: claims jobs, runs them, settles their outcomes, and takes part in maintenance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from tidemill.clock import Clock, Entropy
from tidemill.contract.store import Store
from tidemill.core.pools import PoolSettings
from tidemill.core.states import State
from tidemill.metrics.instruments import MetricRegistry
from tidemill.metrics.snapshots import SnapshotWriter
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.tasks.periodic import PeriodicFunction
from tidemill.telemetry.events import WorkerStarted, WorkerStopped
from tidemill.telemetry.listeners import Signals
from tidemill.worker.event_emitter import best_effort
from tidemill.worker.isolation.bootstrap import refuse_worker_in_child
from tidemill.worker.isolation.runner import IsolatedRunner, Isolation
from tidemill.worker.metrics import WorkerStats
from tidemill.worker.options import UniqueWorkerId, WorkerOptions
from tidemill.worker.runtime import Runtime

if TYPE_CHECKING:
    from tidemill.notifications.config import NotificationConfig
    from tidemill.schedules.schedule import ScheduleSpec
    from tidemill.tasks.redaction import TaskSecrets


Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


class Worker:
    """A worker. You can create it outside of an event loop. It runs only once. The caller opens and closes
    the store.

    - `pools`, `schedules`, `periodics`: what the application declares.
    - `lifespan`: opens resources that handlers share. It yields the value of `ctx.state`.
    - `signals`: delivers the worker's events to listeners.
    - `location`: names the store in events, without secrets.
    - `snapshot_writer`: writes the metrics of the process to the store.
    - `isolation`: a function that gets the number of child processes and creates the runner of isolated jobs.
    - `notifications`: configures webhooks and alerts.
    - `secrets`: which secrets are removed from the texts of events.
    - `started`: is set when the lifespan is open and the worker is about to claim jobs."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition],
        pools: Mapping[str, PoolSettings] | None = None,
        *,
        schedules: Mapping[str, ScheduleSpec] | None = None,
        periodics: Sequence[PeriodicFunction[Any]] = (),
        options: WorkerOptions,
        clock: Clock,
        entropy: Entropy,
        signals: Signals | None = None,
        snapshot_writer: SnapshotWriter | None = None,
        location: str | None = None,
        lifespan: Lifespan | None = None,
        middleware: Sequence[Middleware] = (),
        isolation: Callable[[int], Isolation] = IsolatedRunner,
        notifications: NotificationConfig | None = None,
        secrets: TaskSecrets | None = None,
    ) -> None:
        self._store, self._tasks, self._options = store, tasks, options
        self._pools: Mapping[str, PoolSettings] = {} if pools is None else pools
        self._schedules: Mapping[str, ScheduleSpec] = {} if schedules is None else schedules
        self._clock, self._entropy, self._periodics = clock, entropy, periodics
        self._lifespan: Lifespan = lifespan or nullcontext
        self._middleware, self._isolation, self._notifications = middleware, isolation, notifications
        self._secrets = secrets
        self._signals, self._location = signals or Signals(), location
        self._snapshot_writer = snapshot_writer or SnapshotWriter(MetricRegistry(clock.wall), entropy.new_id)
        self._runtime: Runtime | None = None
        self._stopping = self._forced = False
        self.id = _make_worker_id(options.id, entropy)
        self.stats = WorkerStats(since=clock.wall())
        self.started = asyncio.Event()

    async def run(self) -> None:
        """Runs until the worker was stopped and has drained. With the option `until_idle` it also ends when
        there is nothing to do."""
        refuse_worker_in_child()
        async with self._lifespan() as state:
            self._runtime = Runtime(
                self._store,
                self._tasks,
                self._options,
                self.id,
                self.stats,
                pools=self._pools,
                schedules=self._schedules,
                periodics=self._periodics,
                clock=self._clock,
                entropy=self._entropy,
                signals=self._signals,
                snapshot_writer=self._snapshot_writer,
                isolation=self._isolation,
                middleware=self._middleware,
                state=state,
                notifications=self._notifications,
                secrets=self._secrets,
            )
            if self._stopping:
                self._runtime.stop(force=self._forced)
            self._signals.emit(
                WorkerStarted(
                    worker=self.id,
                    queues=dict(self._options.queues),
                    concurrency=self._options.concurrency,
                    store=self._location,
                )
            )
            self.started.set()
            await self._runtime.run()
            self._signals.emit(self._stopped(await self._count_leftovers()))

    def stop(self) -> None:
        """Drains the worker. It claims no more jobs, and running jobs may finish within the grace time."""
        self._stopping = True
        if self._runtime is not None:
            self._runtime.stop(force=False)

    def stop_now(self) -> None:
        """Stops without a grace time. Running handlers are cancelled, and their jobs are released without
        charging an attempt."""
        self._stopping = self._forced = True
        if self._runtime is not None:
            self._runtime.stop(force=True)

    def _stopped(self, left: _LeftoverJobs) -> WorkerStopped:
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

    async def _count_leftovers(self) -> _LeftoverJobs:
        """Counts the jobs that are left in the worker's queues when it stops because it is idle."""
        if not (self._options.until_idle and self._signals.wants(WorkerStopped)):
            return _LeftoverJobs()
        async with best_effort():
            counts = await self._store.counts()
            mine = [counts.get(queue, {}) for queue in self._options.queues]
            return _LeftoverJobs(
                scheduled=sum(states.get(State.SCHEDULED, 0) for states in mine),
                ready=sum(states.get(State.READY, 0) for states in mine),
                paused=await self._paused(),
            )
        return _LeftoverJobs()

    async def _paused(self) -> tuple[str, ...] | None:
        now, queues = self._clock.wall(), self._options.queues
        infos = [info for info in await self._store.queues() if info.name in queues]
        return tuple(info.name for info in infos if info.pause and info.pause.closed(now)) or None


class _LeftoverJobs(NamedTuple):
    """The numbers of scheduled and ready jobs in the worker's queues, and the names of the paused queues. All
    are None if the jobs were not counted."""

    scheduled: int | None = None
    ready: int | None = None
    paused: tuple[str, ...] | None = None


def _make_worker_id(name: str | None, entropy: Entropy) -> str:
    made = entropy.new_id()
    if name is None or isinstance(name, UniqueWorkerId):
        return str(name or made)  # a plain str, because stores write it
    return f"{name}-{made[-12:]}"
