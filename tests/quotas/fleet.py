"""Several virtual processes on one store, each with an application and a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar, cast
from unittest import mock

from tidemill import Tidemill
from tidemill.clock import Clock, Entropy
from tidemill.contract.store import Store
from tidemill.core.states import FINAL
from tidemill.metrics import snapshots
from tidemill.settings.worker_options import WorkerArguments
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.simulator import SimulatorReply
from tidemill.testing.virtual_loop import START_TIME, VirtualLoop, run_virtual
from tidemill.testing.virtual_processes import VirtualProcess
from tidemill.worker import claim_planner, dispatcher, heartbeat, leadership, maintenance, notifier

T = TypeVar("T")
MakeStore = Callable[[Clock, Entropy], Store]
Write = Callable[[Tidemill], Any]
"""Declares pools and tasks on an application; returns the tasks to enqueue."""

RARE_POLL_OPTIONS: WorkerArguments = {
    "poll": 3600.0,
    "lease": 3600.0,
    "reclaim_every": 3600.0,
    "prune_every": 86_400.0,
    "lead_every": 86_400.0,
}
"""Worker options for drains over days: polls every second would make a test take minutes."""


_PATCHED_INTERVALS = [
    (claim_planner, "SETTINGS_REFRESH_SECONDS"),
    (notifier, "WEBHOOK_REFRESH_SECONDS"),
    (notifier, "FIND_INTERVAL_SECONDS"),
    (snapshots, "WRITE_INTERVAL_SECONDS"),
    (maintenance, "WRITE_INTERVAL_SECONDS"),
    (maintenance, "UPKEEP_SECONDS"),
    (dispatcher, "REARM_SECONDS"),
    (leadership, "REARM_SECONDS"),
    (heartbeat, "REARM_SECONDS"),
]


class MissingReply(Exception):
    """A lost reply as client libraries raise it."""

    def __init__(self, answer: SimulatorReply) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.status_code, self.headers, self.body = answer.status, answer.headers, answer.body


class Fleet:
    """A fleet. Every process runs `write`; `app` only enqueues and inspects."""

    def __init__(self, write: Write, make: MakeStore, seed: int) -> None:
        self.clock, self._entropy = VirtualClock(), SeededEntropy(seed)
        self._write, self._store = write, make(self.clock, self._entropy)
        self.app = Tidemill(store=self._store, clock=self.clock, entropy=self._entropy)
        self.task = write(self.app)
        self.loop = cast("VirtualLoop", asyncio.get_running_loop())
        self.processes: list[VirtualProcess] = []

    def start(self, count: int = 1, **options: Any) -> None:
        """Starts processes with one worker each."""
        for _ in range(count):
            app = Tidemill(store=self._store.new_handle(), clock=self.clock, entropy=self._entropy)
            self._write(app)
            name = f"process {len(self.processes)}"
            process, _ = self.loop.spawn(name, _work(app, **options))
            self.processes.append(process)

    async def live(self) -> int:
        """Returns the number of unfinished jobs."""
        counts = (await self.app.store.counts()).get("default", {})
        return sum(count for state, count in counts.items() if state not in FINAL)

    async def drained(self, within: float, every: float = 1.0) -> None:
        """Waits until every job has ended, or `within` seconds. Polling costs nothing in virtual time."""
        while await self.live() and self.clock.boot() < within:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(every)

    def kill(self) -> None:
        for process in self.processes:
            process.kill()


async def _work(app: Tidemill, **options: Any) -> None:
    async with app:
        await app.worker(heartbeat_thread=False, isolation=False, **options).run()


def in_memory(clock: Clock, entropy: Entropy) -> Store:
    return MemoryStore(clock=clock, entropy=entropy)


def run_fleet(main: Coroutine[Any, Any, T], *, seed: int = 0, start: float = START_TIME) -> T:
    return run_virtual(main, seed=seed, start=start)


@contextmanager
def patch_poll_intervals() -> Iterator[None]:
    """Lengthens the poll intervals that have no option."""
    with ExitStack() as patches:
        for module, period in _PATCHED_INTERVALS:
            patches.enter_context(mock.patch.object(module, period, 3600.0))
        yield
