"""Several virtual processes on one store, each with an application and a worker of its own."""

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
from tidemill.settings.arguments import WorkerArguments
from tidemill.stores.memory import MemoryStore
from tidemill.tallies import tally
from tidemill.testing.manual import SeededEntropy
from tidemill.testing.providers import Answer
from tidemill.testing.virtual import START, VirtualClock, VirtualLoop, run_virtual
from tidemill.testing.virtual_processes import Process
from tidemill.worker import bell, chores, heartbeat, producer, rounds, teller

T = TypeVar("T")
MakeStore = Callable[[Clock, Entropy], Store]
Write = Callable[[Tidemill], Any]
"""Declares pools and tasks on an application; what it answers is for who enqueues."""

SELDOM: WorkerArguments = {
    "poll": 3600.0,
    "lease": 3600.0,
    "reclaim_every": 3600.0,
    "prune_every": 86_400.0,
    "look_every": 86_400.0,
}
"""For drains over days: what looks around every second would make a test take minutes."""


_NO_OPTION_SAYS = [
    (producer, "LOOK_AT_SETTINGS_EVERY"),
    (teller, "LIST_EVERY"),
    (teller, "LOOK_EVERY"),
    (tally, "TELL_EVERY"),
    (rounds, "TELL_EVERY"),
    (rounds, "TEND_EVERY"),
    (bell, "ARMED_FOR"),
    (chores, "ARMED_FOR"),
    (heartbeat, "ARMED_FOR"),
]


class NotAnswered(Exception):
    """As client libraries have it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.status_code, self.headers, self.body = answer.status, answer.headers, answer.body


class Fleet:
    """`write` is what every process runs; `app` is one more that only enqueues and looks."""

    def __init__(self, write: Write, make: MakeStore, seed: int) -> None:
        self.clock, self._entropy = VirtualClock(), SeededEntropy(seed)
        self._write, self._store = write, make(self.clock, self._entropy)
        self.app = Tidemill(store=self._store, clock=self.clock, entropy=self._entropy)
        self.task = write(self.app)
        self.loop = cast("VirtualLoop", asyncio.get_running_loop())
        self.processes: list[Process] = []

    def start(self, count: int = 1, **options: Any) -> None:
        """Processes with a worker each."""
        for _ in range(count):
            app = Tidemill(store=self._store.another(), clock=self.clock, entropy=self._entropy)
            self._write(app)
            name = f"process {len(self.processes)}"
            process, _ = self.loop.spawn(name, _work(app, **options))
            self.processes.append(process)

    async def live(self) -> int:
        """How many jobs have not ended."""
        counts = (await self.app.store.counts()).get("default", {})
        return sum(count for state, count in counts.items() if state not in FINAL)

    async def drained(self, within: float, every: float = 1.0) -> None:
        """When every job has ended, or that time is over. In virtual time looking costs nothing."""
        while await self.live() and self.clock.boot() < within:  # noqa: ASYNC110 - above
            await asyncio.sleep(every)

    def kill(self) -> None:
        for process in self.processes:
            process.kill()


async def _work(app: Tidemill, **options: Any) -> None:
    async with app:
        await app.worker(heartbeat_thread=False, isolation=False, **options).run()


def in_memory(clock: Clock, entropy: Entropy) -> Store:
    return MemoryStore(clock=clock, entropy=entropy)


def run_fleet(main: Coroutine[Any, Any, T], *, seed: int = 0, start: float = START) -> T:
    return run_virtual(main, seed=seed, start=start)


@contextmanager
def seldom() -> Iterator[None]:
    """As SELDOM, for what no option says."""
    with ExitStack() as patches:
        for module, period in _NO_OPTION_SAYS:
            patches.enter_context(mock.patch.object(module, period, 3600.0))
        yield
