"""Builds the parts of a running worker and runs them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemill.clock import Clock, Entropy
from tidemill.contract.store import Store
from tidemill.core.pools import PoolSettings
from tidemill.errors import StoreError
from tidemill.metrics.snapshots import SnapshotWriter
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.tasks.periodic import PeriodicFunction
from tidemill.tasks.redaction import TaskSecrets
from tidemill.telemetry.listeners import Signals
from tidemill.worker.attempt_starter import AttemptStarter
from tidemill.worker.claim_planner import ClaimAhead, ClaimPlanner
from tidemill.worker.dispatcher import Dispatcher
from tidemill.worker.drain import SHUTDOWN_STORE_TIMEOUT_SECONDS, Drain
from tidemill.worker.event_emitter import EventEmitter, emit_pool_changes
from tidemill.worker.executor import Executor
from tidemill.worker.handler_threads import HandlerThreads
from tidemill.worker.heartbeat import HeartbeatSender, LoopHeartbeat, ThreadHeartbeat, WorkerIdentity
from tidemill.worker.in_flight import InFlight, Slots
from tidemill.worker.isolation.runner import Isolation
from tidemill.worker.maintenance import Maintenance
from tidemill.worker.metrics import AttemptMetrics, WorkerStats
from tidemill.worker.notifier import NOTIFICATION_QUEUE
from tidemill.worker.options import WorkerOptions
from tidemill.worker.outbox import DispatchSignal, Outbox, ReportBuffer
from tidemill.worker.settler import Settler
from tidemill.worker.usage import AttemptEnvironment

if TYPE_CHECKING:
    from tidemill.notifications.config import NotificationConfig
    from tidemill.schedules.schedule import ScheduleSpec


class Runtime:
    """The parts of a running worker, built and connected. A part only uses parts that were built before
    it."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition],
        options: WorkerOptions,
        worker: str,
        stats: WorkerStats,
        *,
        pools: Mapping[str, PoolSettings],
        schedules: Mapping[str, ScheduleSpec],
        periodics: Sequence[PeriodicFunction[Any]] = (),
        clock: Clock,
        entropy: Entropy,
        signals: Signals,
        snapshot_writer: SnapshotWriter,
        isolation: Callable[[int], Isolation],
        middleware: Sequence[Middleware],
        state: Any,
        notifications: NotificationConfig | None = None,
        secrets: TaskSecrets | None = None,
    ) -> None:
        self._store, self._tasks, self._options, self._stats = store, tasks, options, stats
        self._boot, self._snapshot_writer = clock.boot, snapshot_writer
        self._loop = asyncio.get_running_loop()
        secrets = secrets or TaskSecrets(tasks)
        self._emitter = EventEmitter(signals, worker, clock, self._loop.time(), secrets)
        self._in_flight, self._slots = InFlight(), Slots(options.concurrency)
        self._signal, self._reports = DispatchSignal(), ReportBuffer()
        self._outbox = Outbox(self._reports, self._signal)
        self._threads = HandlerThreads(options.threads or options.concurrency)
        self._isolated = isolation(_count_processes(options)) if options.isolation else None
        self._executor = self._make_executor(entropy, middleware, state)
        claim_ahead = ClaimAhead(options.concurrency)
        self._planner = ClaimPlanner(options, worker, self._slots, claim_ahead=claim_ahead, tasks=tasks)
        self._maintenance = Maintenance(
            store,
            worker,
            options,
            self._emitter,
            tasks=tasks,
            schedules=schedules,
            periodics=periodics,
            instruments=snapshot_writer.instruments,
            notifications=notifications,
            planner=self._planner,
            signal=self._signal,
        )
        own_tasks = {} if notifications is None else notifications.tasks()
        attempt_starter = self._make_attempt_starter(own_tasks, self._make_environment(pools))
        extra_queues = () if notifications is None else (NOTIFICATION_QUEUE,)
        self._dispatcher = self._make_dispatcher(claim_ahead, attempt_starter, extra_queues)
        self._drain = Drain(
            self._in_flight, self._executor, self._dispatcher, self._emitter, grace=options.grace
        )
        self._heartbeat = self._make_heartbeat(worker)

    def _make_environment(self, pools: Mapping[str, PoolSettings]) -> AttemptEnvironment:
        emitter, loop = self._emitter, self._loop
        return AttemptEnvironment(
            pools,
            self._store,
            lambda: emitter.wall(loop.time()),
            loop,
            emitter.job_event,
            emit_pool_changes=partial(emit_pool_changes, emitter),
        )

    def _make_executor(self, entropy: Entropy, middleware: Sequence[Middleware], state: Any) -> Executor:
        return Executor(
            self._in_flight,
            self._stats,
            self._emitter,
            slots=self._slots,
            outbox=self._outbox,
            signal=self._signal,
            entropy=entropy,
            threads=self._threads,
            isolated=self._isolated,
            middleware=middleware,
            state=state,
        )

    def _make_attempt_starter(
        self, own_tasks: Mapping[str, TaskDefinition], environment: AttemptEnvironment
    ) -> AttemptStarter:
        return AttemptStarter(
            self._in_flight,
            self._executor,
            self._outbox,
            self._planner,
            self._emitter,
            tasks=self._tasks,
            own_tasks=own_tasks,
            environment=environment,
            reports=self._reports,
            stats=self._stats,
            boot=self._boot,
            lease=self._options.lease,
        )

    def _make_dispatcher(
        self, claim_ahead: ClaimAhead, attempt_starter: AttemptStarter, extra_queues: Sequence[str]
    ) -> Dispatcher:
        metrics = AttemptMetrics(self._snapshot_writer.instruments, claim_ahead)
        settler = Settler(
            self._in_flight,
            self._stats,
            self._emitter,
            metrics,
            self._maintenance.advancer,
            on_dependency=self._maintenance.dependencies.note,
        )
        return Dispatcher(
            self._store,
            self._options,
            self._in_flight,
            slots=self._slots,
            outbox=self._outbox,
            signal=self._signal,
            claim_ahead=claim_ahead,
            planner=self._planner,
            settler=settler,
            attempt_starter=attempt_starter,
            executor=self._executor,
            boot=self._boot,
            extra_queues=extra_queues,
        )

    def _make_heartbeat(self, worker: str) -> HeartbeatSender:
        return HeartbeatSender(
            WorkerIdentity(worker=worker, host=socket.gethostname(), pid=os.getpid()),
            self._options,
            self._in_flight,
            self._stats,
            self._emitter,
            reports=self._reports,
            executor=self._executor,
            outbox=self._outbox,
            planner=self._planner,
            to_worker=self._loop.call_soon_threadsafe,
        )

    def stop(self, *, force: bool) -> None:
        """Drains the worker: running jobs may finish within the grace time. `force=True` cancels running
        handlers now and releases their jobs."""
        if force:
            self._drain.force()
        else:
            self._drain.begin()

    async def run(self) -> None:
        """Runs the worker until it has drained, or until it is idle with the option `until_idle`. Then shuts
        it down."""
        make_heartbeat = ThreadHeartbeat if self._options.heartbeat_thread else LoopHeartbeat
        heartbeat = make_heartbeat(self._heartbeat, self._store)
        try:
            await self._maintenance.begin()
            async with asyncio.TaskGroup() as group:
                services = [group.create_task(service) for service in self._services()]
                await self._dispatch()
                for service in services:
                    service.cancel()
        finally:
            await self._shut_down(heartbeat)

    def _services(self) -> list[Coroutine[Any, Any, None]]:
        return [
            self._dispatcher.idle_wait.run(),
            self._planner.watch_settings(self._store),
            *self._maintenance.services(self._snapshot_writer),
        ]

    async def _dispatch(self) -> None:
        """Runs the dispatcher until it ends, or until the drain gives up because outcomes cannot be
        settled."""
        dispatching = asyncio.create_task(self._dispatch_until_idle())
        giving_up = asyncio.create_task(self._drain.gave_up.wait())
        try:
            await asyncio.wait((dispatching, giving_up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            giving_up.cancel()
            dispatching.cancel()
            await asyncio.gather(dispatching, giving_up, return_exceptions=True)
        if not dispatching.cancelled():
            dispatching.result()

    async def _dispatch_until_idle(self) -> None:
        """Runs the dispatcher until it ends. With the option `until_idle` it then runs the maintenance
        services, and dispatches again if they created jobs."""
        created = self._maintenance.created
        await self._dispatcher.run()
        while self._options.until_idle and not self._drain.begun:
            await self._maintenance.finish()
            if self._maintenance.created == created:
                return
            created = self._maintenance.created
            self._signal.request_claim()
            await self._dispatcher.run()

    async def _shut_down(self, heartbeat: ThreadHeartbeat | LoopHeartbeat) -> None:
        """Releases the jobs that are left and stops all parts. It never waits long for a store that hangs.

        If it is cancelled, it skips the waits and still stops all parts."""
        try:
            await self._drain.end()
            await self._drain.release_everything(self._store)
            if self._isolated is not None:
                await self._isolated.drain()
        finally:
            self._executor.close()
            self._maintenance.stop_listening()
            heartbeat.stop()
            self._threads.close()
            if self._isolated is not None:
                self._isolated.close()
        with contextlib.suppress(TimeoutError, StoreError):
            async with asyncio.timeout(2 * SHUTDOWN_STORE_TIMEOUT_SECONDS):
                await heartbeat.stopped(within=SHUTDOWN_STORE_TIMEOUT_SECONDS)
                await self._maintenance.close()
                await self._snapshot_writer.tell(self._store)
                if not self._in_flight.held:
                    await self._heartbeat.sign_off(self._store)


def _count_processes(options: WorkerOptions) -> int:
    return options.isolated_processes or min(options.concurrency, os.cpu_count() or 1)
