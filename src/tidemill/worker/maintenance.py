"""The maintenance services of a worker, such as the pruner and the scheduler. Each has a loop that runs it
when it is due."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidemill.contract.coordination import ARRIVALS_TOPIC, Leadership
from tidemill.contract.jobs import TransactionalStore
from tidemill.contract.store import PeriodicMaintenance, Store
from tidemill.core.documents import DocumentKind
from tidemill.core.outcomes import Snooze
from tidemill.core.queues import HOUR_SECONDS
from tidemill.core.redaction import redact_text
from tidemill.metrics.dependencies import DependencyRecord, save_dependency
from tidemill.metrics.instruments import MetricRegistry
from tidemill.metrics.rollup import MetricsRollup
from tidemill.metrics.snapshots import WRITE_INTERVAL_SECONDS, SnapshotWriter
from tidemill.tasks.definition import TaskDefinition
from tidemill.tasks.periodic import PeriodicFunction
from tidemill.telemetry.events import DependencyUnreachable, JobsDroppedEarly
from tidemill.worker.admitter import Admitter
from tidemill.worker.attempt import Attempt
from tidemill.worker.claim_planner import ClaimPlanner
from tidemill.worker.event_emitter import EventEmitter
from tidemill.worker.flow_advancer import FlowAdvancer
from tidemill.worker.leadership import (
    NO_PERIOD,
    LeaderElection,
    MaintenanceService,
    request_on_wakeup,
    run_service,
)
from tidemill.worker.notifier import Notifier
from tidemill.worker.options import WorkerOptions
from tidemill.worker.outbox import DispatchSignal
from tidemill.worker.periodic import PeriodicFunctions
from tidemill.worker.reclaimer import Reclaimer
from tidemill.worker.scheduler import Scheduler

if TYPE_CHECKING:
    from tidemill.notifications.config import NotificationConfig
    from tidemill.schedules.schedule import ScheduleSpec

MAX_JOBS_PER_PRUNE = 1000
MIN_PRUNE_SECONDS = 1.0


class Pruner:
    """Deletes finished jobs by the retention of their queue.

    - `time`: returns the event-loop time.
    - `metrics_rollup`: saves totals of the history that the store is about to delete."""

    def __init__(
        self, store: Store, metrics_rollup: MetricsRollup, emitter: EventEmitter, time: Callable[[], float]
    ) -> None:
        self._store, self._metrics_rollup, self._emitter, self._time = store, metrics_rollup, emitter, time
        self._warned: dict[str, float] = {}
        self._began, self._dropped = time(), 0
        self._rest: float | None = None

    async def prune(self) -> bool:
        await self._metrics_rollup.keep()
        pruned = await self._store.prune(MAX_JOBS_PER_PRUNE)
        for queue, jobs in pruned.early.items():
            if self._time() - self._warned.get(queue, -math.inf) >= HOUR_SECONDS:
                await self._warn(queue, jobs)
        self._dropped += pruned.pruned
        if not pruned.more:
            self._update_rest()
        return pruned.more

    def seconds_until_next(self) -> float | None:
        """Returns the estimated seconds until about 1000 more jobs can be pruned. Returns None if the last
        run found none.

        Frequent short runs delay claims less than a few long runs."""
        return self._rest

    def _update_rest(self) -> None:
        now = self._time()
        passed, dropped = now - self._began, self._dropped
        self._rest = max(MIN_PRUNE_SECONDS, passed * MAX_JOBS_PER_PRUNE / dropped) if dropped else None
        self._began, self._dropped = now, 0

    async def _warn(self, queue: str, jobs: int) -> None:
        """Emits an event about jobs that were deleted before their retention time, because their queue kept
        too many. It does so at most once per hour and queue."""
        is_first = queue not in self._warned
        self._warned[queue] = self._time()
        hour_ago = (await self._store.read_clock()).wall - HOUR_SECONDS
        in_last_hour = sum(minute.dropped_early for minute in await self._store.history(queue, hour_ago))
        if not (is_first and in_last_hour > jobs):
            self._emitter.worker_event(JobsDroppedEarly, queue=queue, jobs=in_last_hour)


MAX_NAME_CHARACTERS, MAX_PROBLEM_CHARACTERS = 100, 500
WRITE_PAUSE_SECONDS = 2.0
"""A worker writes the record of one service at most this often, however many jobs report it."""


class DependencyRecorder:
    """Emits the events about dependencies that handlers could not use. Writes the records that
    `Inspector.dependencies` reads."""

    def __init__(self, store: Store, emitter: EventEmitter) -> None:
        self._store, self._emitter = store, emitter
        self._loop = asyncio.get_running_loop()
        self.service = MaintenanceService("dependencies", led=False)
        self._pending: dict[str, DependencyRecord] = {}
        self._written_at: dict[str, float] = {}

    def note(self, attempt: Attempt, outcome: Snooze) -> None:
        """Reports that the handler of `attempt` could not use the dependency in its outcome."""
        name, delay = str(outcome.dependency)[:MAX_NAME_CHARACTERS], outcome.delay
        problem = (outcome.reason or "").removeprefix(f"waiting for {outcome.dependency}: ")
        self._emitter.attempt_event(
            DependencyUnreachable, attempt, dependency=name, problem=problem, retry_in=delay
        )
        now = self._emitter.wall(self._loop.time())
        told = redact_text(problem, self._emitter.secrets.usual)[:MAX_PROBLEM_CHARACTERS]
        self._pending[name] = DependencyRecord(name=name, problem=told, since=now, seen=now, retry_in=delay)
        self.service.request(self._written_at.get(name, -WRITE_PAUSE_SECONDS) + WRITE_PAUSE_SECONDS)

    async def write(self) -> bool:
        """Writes the pending records. Returns False: no work is left."""
        pending, self._pending = self._pending, {}
        for name, record in pending.items():
            self._written_at[name] = self._loop.time()
            await save_dependency(self._store, record)
        return False


UPKEEP_SECONDS = 5.0


class Maintenance:
    """Runs the maintenance services of a worker. At least every `lead_every` seconds it asks the store which
    services this worker leads and which are due."""

    def __init__(
        self,
        store: Store,
        worker: str,
        options: WorkerOptions,
        emitter: EventEmitter,
        *,
        tasks: Mapping[str, TaskDefinition],
        schedules: Mapping[str, ScheduleSpec],
        periodics: Sequence[PeriodicFunction[Any]],
        instruments: MetricRegistry,
        notifications: NotificationConfig | None,
        planner: ClaimPlanner,
        signal: DispatchSignal,
    ) -> None:
        self._store, self._options, self._emitter = store, options, emitter
        self._reclaimer = Reclaimer(store, options.lease, emitter)
        self._reclaimed = -NO_PERIOD
        period = min(options.lead_every, options.reclaim_every / 2)
        self.leader = LeaderElection(store, worker, emitter, every=period, on_answer=self._request_due)
        self._reclaim, self._prune = self.leader.service("reclaim"), self.leader.service("prune")
        # Not led: the leader might be the only worker that does not know the task.
        self._admit = MaintenanceService("admit", led=False)
        self._admitter = Admitter(store, tasks)
        self._notifier = (
            None
            if notifications is None
            else Notifier(store, notifications, self.leader, emitter, planner=planner, signal=signal)
        )
        extra_jobs = None if self._notifier is None else self._notifier.add_flow_deliveries
        self.advancer = FlowAdvancer(store, tasks, self.leader, emitter, extra_jobs=extra_jobs)
        self.dependencies = DependencyRecorder(store, emitter)
        self._scheduler = Scheduler(store, tasks, schedules, self.leader, emitter)
        self._periodics = PeriodicFunctions(periodics, store, self.leader, emitter, instruments)
        self._periodic_passes = 0
        self._services_by_kind = {
            DocumentKind.FLOW: self.advancer.service,
            DocumentKind.SCHEDULE: self._scheduler.service,
        }

    @property
    def created(self) -> int:
        """A counter that grows whenever maintenance may have created jobs."""
        notified = 0 if self._notifier is None else self._notifier.created
        return (
            self._admitter.admitted
            + self.advancer.advanced
            + self._scheduler.fired
            + notified
            + self._periodic_passes
        )

    async def begin(self) -> None:
        """Loads the webhooks, which must be known before the first job runs."""
        if self._notifier is not None:
            await self._notifier.begin()

    async def finish(self) -> None:
        """Runs the services that can create jobs until they have nothing left to do. Used for a worker that
        runs until idle."""
        while await self._admitter.admit():
            pass
        await self.advancer.finish()
        await self._scheduler.finish()
        self._periodic_passes += await self._periodics.finish()
        if self._notifier is not None:
            await self._notifier.finish()

    def stop_listening(self) -> None:
        """Unsubscribes from the events for which webhooks and alerts listen."""
        if self._notifier is not None:
            self._notifier.stop_listening()

    async def close(self) -> None:
        """Finishes the work for this worker's last jobs: flows, deliveries and records of dependencies. Then
        gives up its leadership of maintenance."""
        await self.advancer.close()
        await self.dependencies.write()
        if self._notifier is not None:
            await self._notifier.close()
        await self.leader.resign()

    def services(self, snapshot_writer: SnapshotWriter) -> Iterator[Coroutine[Any, Any, None]]:
        """Yields one coroutine per service. The caller runs them concurrently until the worker stops."""
        store, emitter, advancer = self._store, self._emitter, self.advancer
        yield run_service(NO_PERIOD, self._reclaim, self._reclaimer.reclaim, emitter)
        time = asyncio.get_running_loop().time
        pruner = Pruner(store, MetricsRollup(store, time), emitter, time)
        yield run_service(
            self._options.prune_every,
            self._prune,
            pruner.prune,
            emitter,
            seconds_until_next=pruner.seconds_until_next,
        )
        yield run_service(
            WRITE_INTERVAL_SECONDS,
            MaintenanceService("metrics", led=False),
            lambda: snapshot_writer.tell(store),
            emitter,
        )
        yield run_service(NO_PERIOD, self.dependencies.service, self.dependencies.write, emitter)
        yield run_service(NO_PERIOD, self._admit, self._admitter.admit, emitter)
        yield run_service(
            NO_PERIOD,
            advancer.service,
            advancer.sweep,
            emitter,
            seconds_until_next=advancer.seconds_until_next,
        )
        yield advancer.run()
        yield self._scheduler.run()
        if isinstance(store, PeriodicMaintenance):
            yield run_service(UPKEEP_SECONDS, self.leader.service("upkeep"), store.run_maintenance, emitter)
        # A listener costs an idle worker something, so only stores that send this wake-up get one.
        if isinstance(store, TransactionalStore):
            yield request_on_wakeup(store, ARRIVALS_TOPIC, self._admit)
        yield from self._periodics.services()
        yield self.leader.run()
        if self._notifier is not None:
            yield from self._notifier.services()

    def _request_due(self, led: Leadership, sent: float) -> None:
        now = asyncio.get_running_loop().time()
        self._reclaimer.watch(led.clock, sent)
        # Right after a clock reading. Twice per period, so that the successor of a dead leader reclaims
        # before the leases of its jobs end.
        if now - self._reclaimed >= self._options.reclaim_every / 2:
            self._reclaimed = now
            self._reclaim.request()
        if led.arrivals:
            self._admit.request()
        for kind, service in self._services_by_kind.items():
            if (due := led.dues[kind]) is not None:
                service.request(now + due)
