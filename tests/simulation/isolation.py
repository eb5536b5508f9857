"""Stands in for the worker's isolated runner: a virtual process instead of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from tidemill.core.job import Error
from tidemill.core.outcomes import Crashed, Done, Outcome
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition
from tidemill.testing.virtual import VirtualLoop
from tidemill.testing.virtual_processes import current_process
from tidemill.worker.attempt import Attempt
from tidemill.worker.translate import outcome_of


class SimulatedIsolation:
    """Same `run` and `close` as `IsolatedRunner`. A child dies with the worker that started it."""

    def __init__(self, limit: int) -> None:
        self._places = asyncio.Semaphore(limit)
        self._started = 0

    async def run(
        self, attempt: Attempt, definition: TaskDefinition, chance: float, started: Callable[[], None]
    ) -> Outcome:
        async with self._places:
            self._started += 1
            started()
            return await self._run_alone(attempt, definition, chance)

    async def _run_alone(self, attempt: Attempt, definition: TaskDefinition, chance: float) -> Outcome:
        loop, parent = cast("VirtualLoop", asyncio.get_running_loop()), current_process()
        assert parent is not None
        ended: asyncio.Future[Outcome] = loop.create_future()
        child, _ = loop.spawn(
            f"{parent.name}/{self._started}", _handle(attempt, definition, chance, lambda o: _end(ended, o))
        )
        parent.at_death(child.kill)
        child.at_death(lambda: _end(ended, Crashed(Error("ProcessDied", "the simulated process died"))))
        try:
            return await ended
        except BaseException:
            child.kill()
            raise

    def close(self) -> None:
        """Children end with their runs."""


def _end(ended: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not ended.done():
        ended.set_result(outcome)


async def _handle(
    attempt: Attempt, definition: TaskDefinition, chance: float, end: Callable[[Outcome], None]
) -> None:
    job = attempt.job
    args, kwargs = definition.payload.decode(job.payload)
    try:
        result = await definition.handler(Context.of(job, attempt), *args, **kwargs)
    except Exception as error:  # a handler may raise anything
        end(outcome_of(error, definition.retry, job.attempt, job.priority, chance))
    else:
        end(Done(definition.result.encode(result)))
