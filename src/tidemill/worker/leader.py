"""Who of the fleet does a chore, and whether there is anything to do: one request asks for all of it.

All chores are harmless when doubled: leading only saves work.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from hashlib import blake2b

from tidemill.contract.coordinator import Led
from tidemill.contract.store import Store
from tidemill.errors import StoreError
from tidemill.telemetry.events import ChoreBroke, ChoreFailed
from tidemill.worker.duty import Duty
from tidemill.worker.emitter import Emitter, described, with_traceback

LEASES = 2.25
"""Of how many periods a lease is: one request may be lost, and who leads schedules is replaced within 5 s."""

SPREAD = 0.1
"""When a lease is over, all others know. They ask within so many seconds, not at once."""

SHORTEST_REST = 0.01


class Leader:
    """`hear` is told what the store answers, and when it was asked on the loop's clock."""

    def __init__(
        self,
        store: Store,
        worker: str,
        emitter: Emitter,
        *,
        every: float,
        hear: Callable[[Led, float], None] = lambda *_: None,
    ) -> None:
        self._store, self._worker, self._emitter = store, worker, emitter
        self._every, self._hear = every, hear
        self._loop = asyncio.get_running_loop()
        self._duties: dict[str, Duty] = {}  # in order: a simulated history must replay
        self._spread = SPREAD * blake2b(worker.encode(), digest_size=1).digest()[0] / 255

    @property
    def lease(self) -> float:
        return self._every * LEASES

    def duty(self, name: str) -> Duty:
        return self._duties.setdefault(name, Duty(name))

    async def run(self) -> None:
        failing = False
        while True:
            pause = self._every
            try:
                pause = await self._ask()
                failing = False
            except StoreError as error:
                if not failing:
                    self._emitter.worker_event(ChoreFailed, chore="lead", **described(error))
                failing = True
            except Exception as error:  # noqa: BLE001 - one broken chore must not end the worker
                self._emitter.worker_event(ChoreBroke, chore="lead", **with_traceback(error))
            await asyncio.sleep(pause)

    async def pass_on(self, duty: Duty) -> None:
        """Somebody else may do it better: whoever asks next has it, and everybody asks within a lease."""
        if duty.ours:
            duty.lose()
            duty.not_before = self._loop.time() + 1.1 * self.lease
            await self._store.resign([duty.name], self._worker)

    async def resign(self) -> None:
        """Let another take over as soon as it asks; without it, it would when the lease is over."""
        ours = [name for name, duty in self._duties.items() if duty.ours]
        if ours:
            with contextlib.suppress(StoreError):
                await self._store.resign(ours, self._worker)
        for duty in self._duties.values():
            duty.lose()

    async def _ask(self) -> float:
        """Answers in how many seconds to ask again."""
        asked = self._loop.time()
        wanted = [name for name, duty in self._duties.items() if duty.not_before <= asked]
        led = await self._store.lead(wanted, self._worker, self.lease)
        self._note(wanted, led.leads, asked + self.lease)
        self._hear(led, asked)
        free_in = self._every if led.free_in is None else led.free_in + self._spread
        return max(SHORTEST_REST, min(self._every, free_in))

    def _note(self, wanted: Sequence[str], leads: Sequence[str], until: float) -> None:
        for name in wanted:
            if name in leads:
                self._duties[name].keep(until)
            else:
                self._duties[name].lose()
