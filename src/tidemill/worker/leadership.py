"""Leader election, and the loop that runs a maintenance service when this worker leads it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b

from tidemill.contract.coordination import Leadership
from tidemill.contract.store import Store
from tidemill.errors import StoreError
from tidemill.telemetry.events import MaintenanceCrashed, MaintenanceFailed
from tidemill.worker.event_emitter import EventEmitter, error_fields, error_fields_with_traceback
from tidemill.worker.options import REARM_SECONDS


class MaintenanceService:
    """One maintenance service of this worker, such as the pruner. All times are event-loop times.

    - `led`: False if every worker runs the service, without a leader.
    - `due`: the time of the next run.
    - `led_until`: the time at which this worker's leadership ends.
    - `not_before`: the time before which this worker does not ask for the leadership."""

    def __init__(self, name: str, *, led: bool = True) -> None:
        self.name, self.led = name, led
        self.due = 0.0
        self.led_until = 0.0 if led else math.inf
        self.not_before = 0.0
        self.done = asyncio.Event()
        """Set after each run; the waiter clears it."""
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    @property
    def is_led(self) -> bool:
        return self._loop.time() < self.led_until

    def extend_lead(self, until: float) -> None:
        if until > self.led_until:
            self.led_until = until
            self._changed.set()

    def drop_lead(self) -> None:
        self.led_until = 0.0

    def request(self, at: float = 0.0) -> None:
        """Requests a run at event-loop time `at` at the latest. The default requests a run now."""
        if at < self.due:
            self.due = at
            self._changed.set()

    async def wait_until_led(self) -> None:
        while not self.is_led:
            await self._wait_for_change(None)

    async def wait_until_due(self) -> None:
        """Waits until the service is due and this worker leads it."""
        while not self.is_led or self._loop.time() < self.due:
            await self._wait_for_change(self.due if self.is_led and self.due < math.inf else None)

    async def _wait_for_change(self, at: float | None) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(at):
                await self._changed.wait()


NO_PERIOD = math.inf
"""The period of a service that runs only on request."""

RETRY_SECONDS = 5.0
PAUSE_BETWEEN_RUNS_SECONDS = 0.01
"""Seconds between two runs of a long service, so that other requests reach the store."""

MIN_REST_SECONDS = 0.001


async def run_service(
    seconds: float,
    service: MaintenanceService,
    do: Callable[[], Awaitable[bool]],
    emitter: EventEmitter,
    *,
    seconds_until_next: Callable[[], float | None] | None = None,
) -> None:
    """Runs `do` every `seconds` and on request, while this worker leads the service. Runs until cancelled.

    If `do` returns True, more work is left, and `do` is called again almost at once. `seconds_until_next`
    returns the seconds until an earlier run, or None."""
    failing, time = False, asyncio.get_running_loop().time
    while True:
        await service.wait_until_due()
        began = time()
        service.due = (
            began + seconds
        )  # before the run: a request during it may be about something that the run missed
        try:
            more = await do()
            failing = False
            service.done.set()
            if more:
                service.request(time() + PAUSE_BETWEEN_RUNS_SECONDS)
            elif seconds_until_next is not None and (seconds_left := seconds_until_next()) is not None:
                service.request(time() + max(MIN_REST_SECONDS, seconds_left))
        except StoreError as error:
            if not failing:
                emitter.worker_event(MaintenanceFailed, operation=service.name, **error_fields(error))
            failing = True
        except Exception as error:  # noqa: BLE001 - one broken chore must not end the worker
            emitter.worker_event(
                MaintenanceCrashed, operation=service.name, **error_fields_with_traceback(error)
            )
        else:
            continue
        service.due = time() + (seconds if seconds < NO_PERIOD else RETRY_SECONDS)


async def request_on_wakeup(store: Store, topic: str, service: MaintenanceService) -> None:
    """Requests a run of the service after every wake-up of `topic`, while this worker leads the service. Runs
    until cancelled."""
    with contextlib.closing(store.listen([topic])) as listener:
        while True:
            if not service.is_led:
                listener.disarm()
                await service.wait_until_led()
            listener.arm()
            service.done.clear()
            service.request()
            await service.done.wait()  # during an outage the listener returns at once
            await listener.wait(REARM_SECONDS)


LEASE_PERIODS = 2.25
"""Length of a lease in periods: one request may be lost, and the leader of schedules is replaced within 5
s."""

REQUEST_SPREAD_SECONDS = 0.1
"""When a lease ends, every other worker knows. Their requests are spread over this many seconds."""

MIN_REQUEST_SECONDS = 0.01


class LeaderElection:
    """Asks the store every `every` seconds which services this worker leads.

    `on_answer`: is called with the store's answer and the event-loop time of the request."""

    def __init__(
        self,
        store: Store,
        worker: str,
        emitter: EventEmitter,
        *,
        every: float,
        on_answer: Callable[[Leadership, float], None] = lambda *_: None,
    ) -> None:
        self._store, self._worker, self._emitter = store, worker, emitter
        self._every, self._on_answer = every, on_answer
        self._loop = asyncio.get_running_loop()
        # Ordered, so that a simulated history can be replayed.
        self._services_by_name: dict[str, MaintenanceService] = {}
        self._spread = REQUEST_SPREAD_SECONDS * blake2b(worker.encode(), digest_size=1).digest()[0] / 255

    @property
    def lease(self) -> float:
        return self._every * LEASE_PERIODS

    def service(self, name: str) -> MaintenanceService:
        return self._services_by_name.setdefault(name, MaintenanceService(name))

    async def run(self) -> None:
        failing = False
        while True:
            pause = self._every
            try:
                pause = await self.renew()
                failing = False
            except StoreError as error:
                if not failing:
                    self._emitter.worker_event(MaintenanceFailed, operation="lead", **error_fields(error))
                failing = True
            except Exception as error:  # noqa: BLE001 - one broken chore must not end the worker
                fields = error_fields_with_traceback(error)
                self._emitter.worker_event(MaintenanceCrashed, operation="lead", **fields)
            await asyncio.sleep(pause)

    async def hand_over(self, service: MaintenanceService) -> None:
        """Gives up the leadership of a service, so that a worker that knows more tasks can lead. This worker
        asks again only after its old lease would have ended."""
        if service.is_led:
            service.drop_lead()
            service.not_before = self._loop.time() + 1.1 * self.lease
            await self._store.resign([service.name], self._worker)

    async def resign(self) -> None:
        """Gives up the leadership of all services, so that another worker can lead at once."""
        led = [name for name, service in self._services_by_name.items() if service.is_led]
        if led:
            with contextlib.suppress(StoreError):
                await self._store.resign(led, self._worker)
        for service in self._services_by_name.values():
            service.drop_lead()

    async def renew(self) -> float:
        """Renews the leases of this worker and asks for free ones. Returns the seconds until the next
        request."""
        sent = self._loop.time()
        requested = [name for name, service in self._services_by_name.items() if service.not_before <= sent]
        led = await self._store.lead(requested, self._worker, self.lease)
        self._note(requested, led.leads, sent + self.lease)
        self._on_answer(led, sent)
        free_in = self._every if led.free_in is None else led.free_in + self._spread
        return max(MIN_REQUEST_SECONDS, min(self._every, free_in))

    def _note(self, requested: Sequence[str], leads: Sequence[str], until: float) -> None:
        for name in requested:
            if name in leads:
                self._services_by_name[name].extend_lead(until)
            else:
                self._services_by_name[name].drop_lead()
