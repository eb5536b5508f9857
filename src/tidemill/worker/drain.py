"""Stops a worker without losing a job or charging an attempt. It waits for running handlers, then cancels
them and releases their jobs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tidemill.contract.store import Store
from tidemill.core.outcomes import JobRelease
from tidemill.errors import StoreError
from tidemill.telemetry.events import GraceExpired, OutcomesUndelivered, WorkerDraining
from tidemill.worker.attempt import CLEANUP_SECONDS, CancelReason
from tidemill.worker.dispatcher import Dispatcher
from tidemill.worker.event_emitter import EventEmitter
from tidemill.worker.executor import Executor
from tidemill.worker.in_flight import InFlight

OUTCOME_DELIVERY_SECONDS = 5.0
SHUTDOWN_STORE_TIMEOUT_SECONDS = 2.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SECOND_SIGNAL_SECONDS = 1.0
"""Signals this close to the first count as the first: service managers and terminals signal the whole
process group, and a supervisor passes the signal on to its workers."""


class Drain:
    """The orderly stop of a worker. `begin` lets running jobs finish within `grace` seconds; `force` ends
    this grace time at once.

    After the grace time, handlers that still run are cancelled and their jobs are released. `gave_up` is set
    if the store does not accept the outcomes in time."""

    def __init__(
        self,
        in_flight: InFlight,
        executor: Executor,
        dispatcher: Dispatcher,
        emitter: EventEmitter,
        *,
        grace: float,
    ) -> None:
        self._in_flight, self._executor, self._dispatcher = in_flight, executor, dispatcher
        self._emitter, self._grace = emitter, grace
        self.gave_up = asyncio.Event()
        self._forced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        """True once the worker was asked to stop."""
        return self._task is not None

    def begin(self) -> None:
        """Stops claiming, releases jobs that have not started, and starts the grace time. Further calls do
        nothing."""
        if self._task is None:
            self._dispatcher.stop_claiming()
            self._executor.stop_starting()
            self._task = asyncio.create_task(self._drain())
            running = sum(attempt.outcome is None for attempt in self._in_flight.held.values())
            self._emitter.worker_event(WorkerDraining, running=running, grace=self._grace)

    def force(self) -> None:
        """Ends the grace time now: running handlers are cancelled and their jobs are released. Begins the
        drain if it has not begun."""
        self._forced.set()
        self.begin()

    async def end(self) -> None:
        """Stops the timer of the drain, because the worker has no more jobs to wait for."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _drain(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace):
                await self._forced.wait()
        unfinished = [a for a in self._in_flight.held.values() if a.outcome is None]
        self._emitter.worker_event(GraceExpired, running=len(unfinished))
        for attempt in unfinished:
            self._executor.stop(attempt, CancelReason.DRAIN)
        await asyncio.sleep(CLEANUP_SECONDS)
        for attempt in list(self._in_flight.held.values()):
            self._executor.abandon(attempt, JobRelease())
        await asyncio.sleep(OUTCOME_DELIVERY_SECONDS)
        self._emitter.worker_event(OutcomesUndelivered, outcomes=len(self._in_flight.held))
        self.gave_up.set()

    async def release_everything(self, store: Store) -> None:
        """Cancels all handlers and releases their jobs. It is for a worker that was cancelled or has crashed.

        A job whose thread still runs is not released."""
        held = self._in_flight.held
        if not held:
            return
        self._executor.release_unstarted()
        for attempt in held.values():
            self._executor.stop(attempt, CancelReason.DRAIN)
        await asyncio.sleep(0)  # cancels the handlers before the store gives their jobs to other workers
        left = [attempt for attempt in held.values() if not (attempt.batch or attempt).thread_running]
        settlements = [attempt.settlement(attempt.outcome or JobRelease()) for attempt in left]
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(SHUTDOWN_STORE_TIMEOUT_SECONDS):
                await store.settle(settlements)


class StopRequests:
    def __init__(self, stop: Callable[[], None], force: Callable[[], None]) -> None:
        self._stop, self._force = stop, force
        self._loop = asyncio.get_running_loop()
        self._first: float | None = None

    def received(self) -> None:
        if self._first is None:
            self._first = self._loop.time()
            self._stop()
        elif self._loop.time() - self._first >= SECOND_SIGNAL_SECONDS:
            self._force()


@contextmanager
def stop_on_signals(stop: Callable[[], None], force: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` on the first SIGTERM or SIGINT, and `force` on a signal at least one second later. It is
    active inside the `with` block."""
    loop = asyncio.get_running_loop()
    requests = StopRequests(stop, force)
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, requests.received)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
