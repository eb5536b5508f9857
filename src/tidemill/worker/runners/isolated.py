"""Runs a job in a process of its own, the only place where a hard timeout can be kept.

Used for `isolate=True` and for every job with a crash on record, so that what kills its process
kills nothing else. A handler that cannot be found by import fails when its task asks for a process,
and runs in the worker when it is only suspected. Processes are reused while they are healthy, one
job at a time each. An isolated handler gets no lifespan state: `ctx.state` is None there.
"""

from __future__ import annotations

import asyncio
import atexit
import math
from collections.abc import Callable
from typing import Protocol

import msgspec

from tidemill.core.job import Error
from tidemill.core.outcomes import Crashed, Fail, Outcome
from tidemill.core.retry import Retry
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.current import CURRENT
from tidemill.times import in_seconds
from tidemill.worker.attempt import Attempt
from tidemill.worker.batch_verdicts import Item, Verdict
from tidemill.worker.call import Call
from tidemill.worker.runners.messages import Place, Prepare, Run
from tidemill.worker.runners.places import NOT_APART, CannotIsolate, place_of
from tidemill.worker.runners.process import Died, IsolatedProcess
from tidemill.worker.translate import Ends

START_WITHIN = 60.0

Result = Outcome | list[Item] | Verdict
"""The latter two of a call for several jobs."""


class Isolation(Protocol):
    """What the executor needs of it; a simulation has processes of its own."""

    async def run(
        self, attempt: Attempt, definition: TaskDefinition, chance: float, started: Callable[[], None]
    ) -> Result: ...
    def close(self) -> None: ...


class IsolatedRunner:
    def __init__(self, limit: int) -> None:
        self._places = asyncio.Semaphore(limit)
        self._free: list[IsolatedProcess] = []
        self._all: set[IsolatedProcess] = set()
        # A process that exits without closing its worker must not wait for these.
        atexit.register(self.close)

    async def run(
        self, attempt: Attempt, definition: TaskDefinition, chance: float, started: Callable[[], None]
    ) -> Result:
        """`started` is called when the handler is about to run: its timeout counts from there.
        Raises `CannotIsolate` when a process does not find the handler, and what `started` raises: the
        process is there then for the next job."""
        place = place_of(definition)
        async with self._places:
            process = self._take()
            try:
                outcome = await self._run_in(
                    process, _message(definition, place, attempt, chance), attempt, started
                )
            except Died as error:
                return Crashed(Error("ProcessDied", str(error)))
            except (CannotIsolate, Ends):
                self._put_back(process)
                raise
            except BaseException:  # cancelled: whatever the handler is doing ends now
                process.kill()
                raise
            self._put_back(process)
            if isinstance(outcome, Fail) and outcome.reason == NOT_APART:
                raise CannotIsolate(outcome.error.message)
            return outcome

    async def _run_in(
        self,
        process: IsolatedProcess,
        message: Run,
        attempt: Attempt,
        started: Callable[[], None],
    ) -> Result:
        try:
            async with asyncio.timeout(START_WITHIN):
                problem = await process.prepare(Prepare(message.place))
        except TimeoutError:
            process.kill()
            sentence = f"importing {message.place.module} took more than {START_WITHIN:g} seconds"
            raise CannotIsolate(sentence) from None
        if problem is not None:
            raise CannotIsolate(problem)
        started()
        return await process.run(message, attempt)

    def close(self) -> None:
        atexit.unregister(self.close)
        for process in self._all:
            process.kill()

    def _put_back(self, process: IsolatedProcess) -> None:
        process.give_back()
        self._free.append(process)

    def _take(self) -> IsolatedProcess:
        while self._free:
            process = self._free.pop()
            if process.take():
                return process
        process = IsolatedProcess(self._all.discard)
        self._all.add(process)
        return process


def _message(definition: TaskDefinition, place: Place, attempt: Attempt, chance: float) -> Run:
    metering = attempt.metering
    job, *others = attempt.jobs if isinstance(attempt, Call) else (attempt.job,)
    known = CURRENT.get()
    if known is not None and known.id == job.id:
        job = known  # with the trace that middleware gave it
    return Run(
        place=place,
        job=job,
        chance=chance,
        policy=_policy(definition.retry),
        pools={need.pool: metering.pools[need.pool] for need in job.needs if need.pool in metering.pools},
        wall=metering.wall(),
        timeout=attempt.timeout,
        late_in=attempt.tally().late_at() - metering.loop.time() if job.needs else math.inf,
        others=tuple(others),
    )


def _policy(retry: Retry) -> dict[str, int | float | str]:
    """What of a policy is data; exception types and predicates stay behind."""
    policy = {name: in_seconds(value) for name, value in msgspec.structs.asdict(retry).items()}
    return {name: value for name, value in policy.items() if isinstance(value, int | float | str)}


def cannot_isolate(problem: str) -> Outcome:
    sentence = f"this job must run in a process of its own, and cannot: {problem}"
    return Fail(Error("CannotIsolate", sentence), NOT_APART)
