"""People who cancel, retry, pause and change limits while everything runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from tests.simulation.ledger import Ledger
from tests.simulation.network import Network
from tests.simulation.trace import Trace
from tests.simulation.workload import QUEUES
from tidemill.core.changes import Archive, Cancel, Change, Delete, Reprioritise, RetryNow, RunNow
from tidemill.core.filters import Filter
from tidemill.core.queues import QueueChanges
from tidemill.core.states import State
from tidemill.errors import StoreUnavailable

_CHANGES: tuple[Change, ...] = (
    Cancel(),
    Cancel(),
    Archive(),
    RetryNow(),
    RunNow(),
    Reprioritise(0),
    Delete(),
)


class Operator:
    def __init__(
        self, store: Network, ledger: Ledger, trace: Trace, chance: random.Random, wall: Callable[[], float]
    ) -> None:
        self._store, self._ledger, self._trace = store, ledger, trace
        self._chance, self._wall = chance, wall

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(0.7))
            try:
                if self._chance.random() < 0.7:
                    await self._amend()
                else:
                    await self._steer()
            except StoreUnavailable:
                continue

    async def tidy_up(self) -> None:
        for queue in QUEUES:
            await self._store.resume(queue)
            await self._store.clear_override(queue)
        for view in await self._store.pools():
            if view.closures:
                await self._store.open_pool(view.name, key=view.key)

    async def _amend(self) -> None:
        if not self._ledger.sent:
            return
        ids = self._some_jobs()
        change = self._chance.choice(_CHANGES)
        amended = await self._store.amend(Filter(ids=ids), change)
        self._trace.add("operator", f"{type(change).__name__} {', '.join(amended.changed) or 'nothing'}")
        if isinstance(change, Cancel):
            for id_, job in zip(ids, await self._store.get(ids), strict=True):
                if id_ in amended.changed and job is not None and job.state is State.CANCELLED:
                    self._ledger.cancels.setdefault((id_, job.generation), self._ledger.now())

    def _some_jobs(self) -> tuple[str, ...]:
        """Any, or those that have just started: a job in somebody's hands is the hardest to change."""
        if self._ledger.starts and self._chance.random() < 0.5:
            return tuple({run.job: None for run in self._ledger.starts[-2:]})
        return tuple(self._chance.choices(list(self._ledger.sent), k=self._chance.choice((1, 3))))

    async def _steer(self) -> None:
        queue, chance = self._chance.choice(QUEUES), self._chance
        match chance.choice(("pause", "pause until", "resume", "override", "no override")):
            case "pause":
                await self._store.pause(queue)
            case "pause until":
                await self._store.pause(queue, until=self._wall() + chance.uniform(1, 10))
            case "resume":
                await self._store.resume(queue)
            case "override":
                changes = QueueChanges(concurrency=chance.choice((1, 3)))
                until = chance.choice((None, self._wall() + chance.uniform(1, 10)))
                await self._store.override(queue, changes, by="operator", until=until)
            case "no override":
                await self._store.clear_override(queue)
