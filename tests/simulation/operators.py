"""Operators that cancel, retry, pause and change limits while the fleet runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from tests.simulation.network import Network
from tests.simulation.outcome_log import OutcomeLog
from tests.simulation.trace import Trace
from tests.simulation.workload import QUEUES
from tidemill.core.filters import Filter
from tidemill.core.operator_changes import (
    ArchiveJobs,
    CancelJobs,
    DeleteJobs,
    OperatorChange,
    ReprioritiseJobs,
    RetryJobs,
    RunJobsNow,
)
from tidemill.core.queues import QueueChanges
from tidemill.core.states import State
from tidemill.errors import StoreUnavailable

_CHANGES: tuple[OperatorChange, ...] = (
    CancelJobs(),
    CancelJobs(),
    ArchiveJobs(),
    RetryJobs(),
    RunJobsNow(),
    ReprioritiseJobs(0),
    DeleteJobs(),
)


class Operator:
    def __init__(
        self,
        store: Network,
        outcome_log: OutcomeLog,
        trace: Trace,
        chance: random.Random,
        wall: Callable[[], float],
    ) -> None:
        self._store, self._outcome_log, self._trace = store, outcome_log, trace
        self._chance, self._wall = chance, wall

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(0.7))
            try:
                if self._chance.random() < 0.7:
                    await self._amend()
                else:
                    await self._change_something()
            except StoreUnavailable:
                continue

    async def restore_settings(self) -> None:
        for queue in QUEUES:
            await self._store.resume(queue)
            await self._store.clear_override(queue)
        for view in await self._store.pools():
            if view.closures:
                await self._store.open_pool(view.name, key=view.key)

    async def _amend(self) -> None:
        if not self._outcome_log.sent:
            return
        ids = self._some_jobs()
        change = self._chance.choice(_CHANGES)
        amended = await self._store.amend(Filter(ids=ids), change)
        self._trace.add("operator", f"{type(change).__name__} {', '.join(amended.changed) or 'nothing'}")
        if isinstance(change, CancelJobs):
            for id_, job in zip(ids, await self._store.get(ids), strict=True):
                if id_ in amended.changed and job is not None and job.state is State.CANCELLED:
                    self._outcome_log.cancels.setdefault((id_, job.generation), self._outcome_log.now())

    def _some_jobs(self) -> tuple[str, ...]:
        """Picks any jobs, or jobs that have just started: a running job is the hardest to change."""
        if self._outcome_log.starts and self._chance.random() < 0.5:
            return tuple({run.job: None for run in self._outcome_log.starts[-2:]})
        return tuple(self._chance.choices(list(self._outcome_log.sent), k=self._chance.choice((1, 3))))

    async def _change_something(self) -> None:
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
