"""Runs the periodic functions of the application while this worker leads them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from tidemill.contract.store import Store
from tidemill.metrics.catalogue import PERIODIC_FAILURES, PERIODIC_RUNS
from tidemill.metrics.instruments import Counter, MetricRegistry
from tidemill.tasks.periodic import PeriodicFunction, periodic_topic
from tidemill.telemetry.events import PeriodicFailed
from tidemill.worker.attempt import CLEANUP_SECONDS
from tidemill.worker.event_emitter import EventEmitter, best_effort, error_fields_with_traceback
from tidemill.worker.leadership import LeaderElection, MaintenanceService, run_service
from tidemill.worker.options import REARM_SECONDS


class PeriodicRunner:
    """Runs one periodic function in this worker. If the worker stops, a run that has begun may finish within
    5 s."""

    def __init__(
        self,
        periodic: PeriodicFunction[Any],
        store: Store,
        leader: LeaderElection,
        emitter: EventEmitter,
        instruments: MetricRegistry,
    ) -> None:
        self._periodic, self._store, self._emitter = periodic, store, emitter
        name = f"periodic {periodic.name}"
        self._service = (
            MaintenanceService(name, led=False) if periodic.on_every_worker else leader.service(name)
        )
        self._loop = asyncio.get_running_loop()
        self._runs = instruments.own(Counter(PERIODIC_RUNS))
        self._failures = instruments.own(Counter(PERIODIC_FAILURES))
        self._last_error = ""
        self.first_run_ended = asyncio.Event()

    @property
    def is_led(self) -> bool:
        return self._service.is_led

    async def run(self) -> None:
        with self._awake():
            async with asyncio.TaskGroup() as group:
                group.create_task(
                    run_service(self._periodic.every, self._service, self.run_once, self._emitter)
                )
                if not self._periodic.on_every_worker:
                    group.create_task(self._request_on_wakeup())

    async def _request_on_wakeup(self) -> None:
        """Requests a run after every wake-up, while this worker leads the function."""
        service = self._service
        with closing(self._store.listen([periodic_topic(self._periodic.name)])) as listener:
            while True:
                if not service.is_led:
                    listener.disarm()
                    await service.wait_until_led()
                listener.arm()
                if await listener.wait(REARM_SECONDS):
                    service.done.clear()
                    service.request()
                    await service.done.wait()

    async def run_once(self) -> bool:
        """Calls the function once and reports its error. Returns False: no work is left."""
        name = self._periodic.name
        self._runs.add(name=name)
        try:
            await _finish_when_cancelled(self._periodic.function())
            self._last_error = ""
        except Exception as error:  # noqa: BLE001 - the next run may succeed
            self._failures.add(name=name)
            described = f"{type(error).__name__}: {error}"
            if described != self._last_error:
                self._emitter.worker_event(PeriodicFailed, name=name, **error_fields_with_traceback(error))
            self._last_error = described
            self._service.request(self._loop.time() + self._periodic.retry_in)
        self.first_run_ended.set()
        return False

    @contextmanager
    def _awake(self) -> Iterator[None]:
        """Lets `PeriodicFunction.wake` reach this worker during the block."""

        def wake() -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._request)

        self._periodic.attach(wake)
        try:
            yield
        finally:
            self._periodic.detach(wake)

    def _request(self) -> None:
        if self._service.is_led:
            self._service.request()
        else:
            self._store.wake([periodic_topic(self._periodic.name)])


class PeriodicFunctions:
    """All periodic functions of the application, in this worker."""

    def __init__(
        self,
        declared: Sequence[PeriodicFunction[Any]],
        store: Store,
        leader: LeaderElection,
        emitter: EventEmitter,
        instruments: MetricRegistry,
    ) -> None:
        self._leader = leader
        self._runners = [
            PeriodicRunner(periodic, store, leader, emitter, instruments) for periodic in declared
        ]

    def services(self) -> Iterator[Coroutine[Any, Any, None]]:
        for runner in self._runners:
            yield runner.run()

    async def finish(self) -> bool:
        """Waits until each function that this worker leads has run once. Returns True if it waited, because a
        run may have created jobs."""
        waiting = [runner for runner in self._runners if not runner.first_run_ended.is_set()]
        if waiting:
            async with best_effort():  # without an answer another worker may lead them
                await self._leader.renew()
        due = [runner for runner in waiting if runner.is_led]
        for runner in due:
            await runner.first_run_ended.wait()
        return bool(due)


async def _finish_when_cancelled(work: Any) -> None:
    """Awaits `work`. If the caller is cancelled, `work` may still finish within 5 s; then it is cancelled."""
    running = asyncio.ensure_future(work)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,), timeout=CLEANUP_SECONDS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        raise
