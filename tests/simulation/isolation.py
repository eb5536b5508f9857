"""Replaces the worker's isolated runner: runs a virtual process instead of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from tidemill.core.jobs import Error
from tidemill.core.outcomes import Crash, Success
from tidemill.tasks.batches import FailedItem
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition
from tidemill.testing.virtual_loop import VirtualLoop
from tidemill.testing.virtual_processes import current_process
from tidemill.worker.attempt import Attempt
from tidemill.worker.batch_attempt import BatchAttempt
from tidemill.worker.batch_outcomes import (
    BatchItem,
    BatchOutcome,
    check_results,
    decide_batch_error,
    encode_result,
)
from tidemill.worker.isolation.runner import IsolatedResult
from tidemill.worker.outcomes import decide_refusal, outcome_of_error


class SimulatedIsolation:
    """Has the same `run` and `close` as `IsolatedRunner`. A child dies with its worker."""

    runs_middleware = False
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
    ) -> IsolatedResult:
        async with self._places:
            self._started += 1
            started()
            return await self._run_alone(attempt, definition, chance)

    async def _run_alone(self, attempt: Attempt, definition: TaskDefinition, chance: float) -> IsolatedResult:
        loop, parent = cast("VirtualLoop", asyncio.get_running_loop()), current_process()
        assert parent is not None
        ended: asyncio.Future[IsolatedResult] = loop.create_future()
        child, _ = loop.spawn(
            f"{parent.name}/{self._started}", _handle(attempt, definition, chance, lambda o: _end(ended, o))
        )
        parent.on_kill(child.kill)
        child.on_kill(lambda: _end(ended, Crash(Error("ProcessDied", "the simulated process died"))))
        try:
            return await ended
        except BaseException:
            child.kill()
            raise

    async def drain(self) -> None:
        """Does nothing: children end with their runs."""

    def close(self) -> None:
        """Does nothing: children end with their runs."""


def _end(ended: asyncio.Future[IsolatedResult], outcome: IsolatedResult) -> None:
    if not ended.done():
        ended.set_result(outcome)


async def _handle(
    attempt: Attempt, definition: TaskDefinition, chance: float, end: Callable[[IsolatedResult], None]
) -> None:
    if isinstance(attempt, BatchAttempt):
        end(await _handle_call(attempt, definition, chance))
        return
    job = attempt.job
    args, kwargs = definition.payload.decode(job.payload)
    try:
        result = await definition.handler(Context.of(job, attempt), *args, **kwargs)
    except Exception as error:  # a handler may raise anything
        refusal = None if attempt.usage is None else decide_refusal(attempt.usage.meter, error, job)
        failed = outcome_of_error(error, definition.retry, job.attempt, job.priority, chance)
        end(failed if refusal is None else refusal.outcome)
    else:
        end(Success(definition.result.encode(result)))


async def _handle_call(
    call: BatchAttempt, definition: TaskDefinition, chance: float
) -> list[BatchItem] | BatchOutcome:
    try:
        results = check_results(await definition.handler(call.items), len(call.items))
    except Exception as error:
        return decide_batch_error(error, None, call.jobs, definition.retry, chance)
    return [
        result if isinstance(result, FailedItem) else encode_result(result, definition.result)
        for result in results
    ]
