"""Declares the schedules of this program in the store. On the leader it also creates the jobs of ticks that
are due."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from tidemill.contract.coordination import worklist_topic
from tidemill.contract.store import Store
from tidemill.core.documents import DocumentKind
from tidemill.errors import StoreError
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.events import (
    MaintenanceCrashed,
    MaintenanceFailed,
    ScheduleFired,
    ScheduleSkipped,
)
from tidemill.worker.event_emitter import EventEmitter, error_fields, error_fields_with_traceback
from tidemill.worker.leadership import NO_PERIOD, LeaderElection, request_on_wakeup, run_service

if TYPE_CHECKING:
    from tidemill.schedules.advance_pass import ScheduleFault
    from tidemill.schedules.schedule import ScheduleSpec, TickRecord


RETRY_SECONDS = 5.0
DECLARE_SERVICE = "declare schedules"


class Scheduler:
    """Creates the jobs of schedules whose tick is due. Workers with the same tasks share one leader.

    If two leaders handle the same tick, the store accepts only the first leader's job."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition],
        declared: Mapping[str, ScheduleSpec],
        leader: LeaderElection,
        emitter: EventEmitter,
    ) -> None:
        self._store, self._tasks, self._declared = store, tasks, declared
        self._emitter = emitter
        self.service = leader.service(f"schedules {_hash_tasks(tasks)}")
        self._is_declared = False
        self._unknown: set[str] = set()
        self._reported: set[str] = set()
        self._next_due: float | None = None
        self._lock = asyncio.Lock()
        self.fired = 0

    async def run(self) -> None:
        await self._declare_with_retry()
        async with asyncio.TaskGroup() as group:
            group.create_task(
                run_service(
                    NO_PERIOD,
                    self.service,
                    self.fire,
                    self._emitter,
                    seconds_until_next=self._seconds_until_next,
                )
            )
            group.create_task(
                request_on_wakeup(self._store, worklist_topic(DocumentKind.SCHEDULE), self.service)
            )

    async def fire(self) -> bool:
        """Creates the jobs of the ticks that are due. Returns True if more schedules are due."""
        from tidemill.schedules.advance_pass import (
            fire_due_schedules,  # imported here: a client does not need it
        )

        async with self._lock:
            done = await fire_due_schedules(self._store, self._tasks, len(self._unknown), self._on_tick)
            self._unknown, self._next_due = done.left, 0.0 if done.more else done.next_due
            self._emit_broken(done.broken)
            return done.more

    async def finish(self) -> None:
        """Declares the schedules and creates the jobs of all due ticks. Used for a worker that runs until
        idle."""
        await self._declare()
        while await self.fire():
            pass

    def _seconds_until_next(self) -> float | None:
        return self._next_due

    async def _declare_with_retry(self) -> None:
        while not self._is_declared:
            try:
                await self._declare()
            except StoreError as error:
                self._emitter.worker_event(
                    MaintenanceFailed, operation=DECLARE_SERVICE, **error_fields(error)
                )
                await asyncio.sleep(RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001 - schedules there are go on, and so does the worker
                self._emitter.worker_event(
                    MaintenanceCrashed, operation=DECLARE_SERVICE, **error_fields_with_traceback(error)
                )
                return

    async def _declare(self) -> None:
        from tidemill.schedules.changes import declare_schedules

        async with self._lock:
            if not self._is_declared:
                await declare_schedules(self._store, self._declared, self._tasks)
                self._is_declared = True

    def _emit_broken(self, broken: Sequence[ScheduleFault]) -> None:
        for schedule, error in broken:
            if schedule not in self._reported:
                self._reported.add(schedule)
                self._emitter.worker_event(
                    MaintenanceCrashed, operation=f"schedule {schedule}", **error_fields_with_traceback(error)
                )

    def _on_tick(self, name: str, past: TickRecord) -> None:
        from tidemill.schedules.schedule import TickOutcome

        self.fired += 1
        if past.outcome is TickOutcome.FIRED:
            self._emitter.worker_event(
                ScheduleFired, schedule=name, tick=past.tick, job=past.job, seconds=past.at - past.tick
            )
        else:
            self._emitter.worker_event(
                ScheduleSkipped, schedule=name, tick=past.tick, reason=str(past.outcome), count=past.count
            )


def _hash_tasks(tasks: Mapping[str, TaskDefinition]) -> str:
    """Returns a hash of the names and arguments of all tasks. Workers with the same tasks get the same
    hash."""
    known = sorted(f"{name}({_describe_arguments(task)})" for name, task in tasks.items())
    return blake2b("\0".join(known).encode(), digest_size=6).hexdigest()


def _describe_arguments(task: TaskDefinition) -> str:
    """Returns the names of a task's arguments, with their types where these are classes."""
    hints = task.payload.hints
    types = {name: hint.__qualname__ for name, hint in hints.items() if isinstance(hint, type)}
    return ", ".join(f"{name}: {types.get(name, '')}" for name in task.payload.names)
