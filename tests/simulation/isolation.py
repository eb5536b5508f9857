"""Stands in for the worker's isolated runner: a virtual process instead of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from tidemill.core.job import Error
from tidemill.core.outcomes import Crashed, Done
from tidemill.tasks.batches import Failed
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition
from tidemill.testing.virtual import VirtualLoop
from tidemill.testing.virtual_processes import current_process
from tidemill.worker.attempt import Attempt
from tidemill.worker.batch_verdicts import Item, Verdict, check, raised, stored
from tidemill.worker.call import Call
from tidemill.worker.refused import refused
from tidemill.worker.runners.isolated import Result
from tidemill.worker.translate import outcome_of


class SimulatedIsolation:
    """Same `run` and `close` as `IsolatedRunner`. A child dies with the worker that started it."""

    surrounds = False
    lifespan_problem = None

    def __init__(self, limit: int) -> None:
        self._places = asyncio.Semaphore(limit)
        self._started = 0

    async def run(
        self,
        attempt: Attempt,
        definition: TaskDefinition,
        chance: float,
        started: Callable[[], None],
        middleware: int,
    ) -> Result:
        async with self._places:
            self._started += 1
            started()
            return await self._run_alone(attempt, definition, chance)

    async def _run_alone(self, attempt: Attempt, definition: TaskDefinition, chance: float) -> Result:
        loop, parent = cast("VirtualLoop", asyncio.get_running_loop()), current_process()
        assert parent is not None
        ended: asyncio.Future[Result] = loop.create_future()
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

    async def drain(self) -> None:
        """Children end with their runs."""

    def close(self) -> None:
        """Children end with their runs."""


def _end(ended: asyncio.Future[Result], outcome: Result) -> None:
    if not ended.done():
        ended.set_result(outcome)


async def _handle(
    attempt: Attempt, definition: TaskDefinition, chance: float, end: Callable[[Result], None]
) -> None:
    if isinstance(attempt, Call):
        end(await _handle_call(attempt, definition, chance))
        return
    job = attempt.job
    args, kwargs = definition.payload.decode(job.payload)
    try:
        result = await definition.handler(Context.of(job, attempt), *args, **kwargs)
    except Exception as error:  # a handler may raise anything
        told = None if attempt.spending is None else refused(attempt.spending.meter, error, job)
        failed = outcome_of(error, definition.retry, job.attempt, job.priority, chance)
        end(failed if told is None else told.outcome)
    else:
        end(Done(definition.result.encode(result)))


async def _handle_call(call: Call, definition: TaskDefinition, chance: float) -> list[Item] | Verdict:
    try:
        results = check(await definition.handler(call.items), len(call.items))
    except Exception as error:
        return raised(error, None, call.jobs, definition.retry, chance)
    return [result if isinstance(result, Failed) else stored(result, definition.result) for result in results]
