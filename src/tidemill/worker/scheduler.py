"""Sees to it that schedules tick: declares those of its code, and, as their leader, fires what is due."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from tidemill.contract.store import Store
from tidemill.contract.wakeups import agenda_topic
from tidemill.core.courses import Kind
from tidemill.errors import StoreError
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.events import ChoreBroke, ChoreFailed, ScheduleFired, ScheduleSkipped
from tidemill.worker.chores import NEVER, every, when_rung
from tidemill.worker.emitter import Emitter, described, with_traceback
from tidemill.worker.leader import Leader

if TYPE_CHECKING:
    from tidemill.schedules.firing import Broken
    from tidemill.schedules.schedule import Past, Wanted

TRY_AGAIN_AFTER = 5.0
DECLARING = "declare schedules"


class Scheduler:
    """Workers with the same tasks have one leader. Those of another program, or of another version of it,
    have their own, for it may know tasks that this one does not; where both know one, the store takes the
    first."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition],
        declared: Mapping[str, Wanted],
        leader: Leader,
        emitter: Emitter,
    ) -> None:
        self._store, self._tasks, self._declared = store, tasks, declared
        self._emitter = emitter
        self.duty = leader.duty(f"schedules {_mark(tasks)}")
        self._is_declared = False
        self._left: set[str] = set()
        self._told: set[str] = set()
        self._next_due: float | None = None
        self._turn = asyncio.Lock()
        self.fired = 0

    async def run(self) -> None:
        await self._declare_in_time()
        async with asyncio.TaskGroup() as group:
            group.create_task(every(NEVER, self.duty, self.fire, self._emitter, rest=self._rest))
            group.create_task(when_rung(self._store, agenda_topic(Kind.SCHEDULE), self.duty))

    async def fire(self) -> bool:
        """True when there is more to do."""
        from tidemill.schedules.firing import fire_due  # a client has no need of any of it

        async with self._turn:
            done = await fire_due(self._store, self._tasks, len(self._left), self._tell)
            self._left, self._next_due = done.left, 0.0 if done.more else done.next_due
            self._tell_broken(done.broken)
            return done.more

    async def finish(self) -> None:
        """For a worker that runs until nothing is left to do."""
        await self._declare()
        while await self.fire():
            pass

    def _rest(self) -> float | None:
        return self._next_due

    async def _declare_in_time(self) -> None:
        while not self._is_declared:
            try:
                await self._declare()
            except StoreError as error:
                self._emitter.worker_event(ChoreFailed, chore=DECLARING, **described(error))
                await asyncio.sleep(TRY_AGAIN_AFTER)
            except Exception as error:  # noqa: BLE001 - schedules there are go on, and so does the worker
                self._emitter.worker_event(ChoreBroke, chore=DECLARING, **with_traceback(error))
                return

    async def _declare(self) -> None:
        from tidemill.schedules.keeping import declare

        async with self._turn:
            if not self._is_declared:
                await declare(self._store, self._declared, self._tasks)
                self._is_declared = True

    def _tell_broken(self, broken: Sequence[Broken]) -> None:
        for schedule, error in broken:
            if schedule not in self._told:
                self._told.add(schedule)
                self._emitter.worker_event(ChoreBroke, chore=f"schedule {schedule}", **with_traceback(error))

    def _tell(self, name: str, past: Past) -> None:
        from tidemill.schedules.schedule import Outcome

        self.fired += 1
        if past.outcome is Outcome.FIRED:
            self._emitter.worker_event(
                ScheduleFired, schedule=name, tick=past.tick, job=past.job, seconds=past.at - past.tick
            )
        else:
            self._emitter.worker_event(
                ScheduleSkipped, schedule=name, tick=past.tick, reason=str(past.outcome), count=past.count
            )


def _mark(tasks: Mapping[str, TaskDefinition]) -> str:
    """The same for workers with the same tasks, which take the same arguments."""
    known = sorted(f"{name}({_arguments(task)})" for name, task in tasks.items())
    return blake2b("\0".join(known).encode(), digest_size=6).hexdigest()


def _arguments(task: TaskDefinition) -> str:
    """As far as every process of that version says the same."""
    hints = task.payload.hints
    types = {name: hint.__qualname__ for name, hint in hints.items() if isinstance(hint, type)}
    return ", ".join(f"{name}: {types.get(name, '')}" for name in task.payload.names)
