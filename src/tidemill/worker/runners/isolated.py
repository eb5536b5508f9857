"""Runs a job in a process of its own, the only place where a hard timeout can be kept.

Used for `isolate=True` and for every job with a crash on record, so that what kills its process
kills nothing else. Processes are reused while they are healthy, one job at a time each. The child
finds the worker's application by import and opens its lifespan, so `ctx.state` is what it is in a
worker. A job that is only suspected runs in the worker when no child can do that. A task that asks
for a process fails when its handler is not found, and runs without the lifespan when that keeps failing.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from tidemill.clock import SystemClock
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
from tidemill.worker.runners.process import CLOSE_WITHIN, Died, IsolatedProcess, SpawnFailed
from tidemill.worker.runners.process_waits import ProcessWaits
from tidemill.worker.translate import Ends

START_WITHIN = 60.0
FIRST_WAIT = 5.0
LONGEST_WAIT = 300.0
MOST_DOUBLINGS = 10
"""Of the wait. A lifespan may fail for weeks, and 2 ** 1100 is no float."""
TRIES = 3
"""After this many failed starts in a row suspects run in the worker, isolated tasks without the lifespan."""

Result = Outcome | list[Item] | Verdict
"""The latter two of a call for several jobs."""


class ChildNotStarted(Exception):
    """No child could be prepared for a job: the lifespan failed there, or the process died before the
    handler began. `again_in` is when to try again. `is_new` is False while an earlier failure is waited
    for."""

    def __init__(self, problem: str, again_in: float, *, is_new: bool) -> None:
        super().__init__(problem)
        self.problem, self.again_in, self.is_new = problem, again_in, is_new


class Isolation(Protocol):
    """What the executor needs of it; a simulation has processes of its own. `surrounds` says that it runs
    the application's middleware around the handler. `run` gets their number. `lifespan_problem` says why
    the handler runs without the lifespan. Read it in `started`."""

    @property
    def surrounds(self) -> bool: ...
    @property
    def lifespan_problem(self) -> str | None: ...

    async def run(
        self,
        attempt: Attempt,
        definition: TaskDefinition,
        chance: float,
        started: Callable[[], None],
        middleware: int,
    ) -> Result: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


class IsolatedRunner:
    """`find_application` says where children find the worker's application, None for a worker without
    one. Without `shares_store` its jobs are in the worker's memory."""

    def __init__(
        self,
        limit: int,
        find_application: Callable[[], str | None] | None = None,
        *,
        shares_store: bool = True,
    ) -> None:
        self._places = asyncio.Semaphore(limit)
        self._resumed = 0
        self._find_application, self._shares_store = find_application, shares_store
        self._clock = SystemClock()
        self.lifespan_problem: str | None = None
        self._free: list[IsolatedProcess] = []
        self._all: set[IsolatedProcess] = set()
        self._loop = asyncio.get_running_loop()
        self._failures = 0
        self._problem, self._not_before = "", 0.0
        # A process that exits without closing its worker must not wait for these.
        atexit.register(self.close)

    @property
    def surrounds(self) -> bool:
        return self._application is not None

    async def run(
        self,
        attempt: Attempt,
        definition: TaskDefinition,
        chance: float,
        started: Callable[[], None],
        middleware: int,
    ) -> Result:
        """`started` is called when the handler is about to run: its timeout counts from there.
        Raises `CannotIsolate` when a process does not find the handler, `ChildNotStarted` when there is no
        process, and what `started` raises: the process is there then for the next job."""
        expected = None if definition.isolate else middleware
        prepare = Prepare(definition.name, self._place(definition), expected)
        async with self._place_among_processes():
            try:
                process = await self._ready_process(prepare, definition)
                outcome = await self._run_in(process, definition, attempt, chance, started)
            except Died as error:
                attempt.committed = None  # the store knows whether the process has committed
                return Crashed(Error("ProcessDied", str(error)))
            if isinstance(outcome, Fail) and outcome.reason == NOT_APART:
                raise CannotIsolate(outcome.error.message)
            return outcome

    async def _run_in(
        self,
        process: IsolatedProcess,
        definition: TaskDefinition,
        attempt: Attempt,
        chance: float,
        started: Callable[[], None],
    ) -> Result:
        waits = ProcessWaits(attempt, self._place_lent)
        try:
            self.lifespan_problem = None if process.lifespan else self._problem
            started()
            message = _message(definition, attempt, chance, self._clock.boot())
            outcome = await process.run(message, attempt, waits)
        except Died:
            raise
        except BaseException as error:  # cancelled, unless its units are too old
            if isinstance(error, Ends) or process.stopped:
                self._put_back(process)
            else:
                attempt.committed = None
                process.kill()
            raise
        finally:
            waits.close()
        self._put_back(process)
        return outcome

    async def drain(self) -> None:
        """Let idle processes close their lifespans; what is left then is killed by `close`."""
        processes = list(self._free)
        for process in processes:
            process.hang_up()
        if processes:
            waits = [asyncio.ensure_future(process.ended.wait()) for process in processes]
            await asyncio.wait(waits, timeout=CLOSE_WITHIN)

    def close(self) -> None:
        atexit.unregister(self.close)
        for process in self._all:
            process.kill()

    @asynccontextmanager
    async def _place_among_processes(self) -> AsyncIterator[None]:
        await self._places.acquire()
        try:
            yield
        finally:
            if self._resumed:
                self._resumed -= 1
            else:
                self._places.release()

    def _place_lent(self, lent: bool) -> None:
        """A handler that waits for another job leaves its place and resumes without one: then the next place
        that comes free stays empty."""
        if lent:
            self._places.release()
        else:
            self._resumed += 1

    @functools.cached_property
    def _application(self) -> str | None:
        return None if self._find_application is None else self._find_application()

    def _place(self, definition: TaskDefinition) -> Place | None:
        """The application has the task by its name, so its handler may be a closure. Without the application
        there is no `ctx.state` and no `ctx.transaction()`: only `isolate=True` is content with that."""
        if not self._shares_store and not definition.isolate:
            raise CannotIsolate("the jobs are in the worker's memory, which another process cannot reach")
        is_missing = self._find_application is not None and self._application is None
        if is_missing and not definition.isolate:
            raise CannotIsolate(
                "the application is not a variable of a module, so another process cannot open its lifespan"
            )
        try:
            return place_of(definition)
        except CannotIsolate:
            if self._application is None:
                raise
            return None

    async def _ready_process(self, prepare: Prepare, definition: TaskDefinition) -> IsolatedProcess:
        """A process that has found the handler. When the lifespan has failed too often, one without it: no
        job waits for ever. The lifespan is tried again now and then."""
        wait = self._not_before - self._loop.time()
        if self._failures < TRIES:
            if wait > 0:
                raise ChildNotStarted(self._problem, wait, is_new=False)
            return await self._prepared(prepare, definition)
        if not definition.isolate:
            raise CannotIsolate(self._problem)
        if wait <= 0:
            with contextlib.suppress(ChildNotStarted):
                return await self._prepared(prepare, definition)
        return await self._prepared(msgspec.structs.replace(prepare, lifespan=False), definition)

    async def _prepared(self, prepare: Prepare, definition: TaskDefinition) -> IsolatedProcess:
        process = self._take(lifespan=prepare.lifespan)
        try:
            await self._prepare(process, prepare, definition)
        except CannotIsolate:
            self._put_back(process)
            raise
        except Died:
            raise
        except BaseException:
            process.kill()
            raise
        return process

    async def _prepare(self, process: IsolatedProcess, prepare: Prepare, definition: TaskDefinition) -> None:
        try:
            async with asyncio.timeout(START_WITHIN):
                ready = await process.prepare(prepare)
        except TimeoutError:
            raise self._not_started(f"starting took more than {START_WITHIN:g} seconds") from None
        except Died as error:
            if definition.isolate and not isinstance(error, SpawnFailed):  # its import may be what kills it
                raise
            raise self._not_started(str(error)) from None
        if not ready.opened:
            raise self._not_started(f"the lifespan raised {ready.problem}")
        if ready.problem is not None:
            raise CannotIsolate(ready.problem)
        if process.lifespan:
            self._failures = 0

    def _not_started(self, problem: str) -> ChildNotStarted:
        wait = min(FIRST_WAIT * 2 ** min(self._failures, MOST_DOUBLINGS), LONGEST_WAIT)
        self._failures += 1
        self._problem, self._not_before = problem, self._loop.time() + wait
        return ChildNotStarted(problem, wait, is_new=True)

    def _put_back(self, process: IsolatedProcess) -> None:
        process.give_back()
        self._free.append(process)

    def _take(self, *, lifespan: bool) -> IsolatedProcess:
        while self._free:
            process = self._free.pop()
            if lifespan and not process.lifespan:
                process.hang_up()
            elif process.take():
                return process
        process = IsolatedProcess(self._all.discard, self._application, lifespan=lifespan)
        self._all.add(process)
        return process


def _message(definition: TaskDefinition, attempt: Attempt, chance: float, began: float) -> Run:
    metering = attempt.metering
    job, *others = attempt.jobs if isinstance(attempt, Call) else (attempt.job,)
    known = CURRENT.get()
    if known is not None and known.id == job.id:
        job = known  # with the trace that middleware gave it
    return Run(
        job=job,
        chance=chance,
        policy=_policy(definition.retry),
        pools={need.pool: metering.pools[need.pool] for need in job.needs if need.pool in metering.pools},
        began=began,
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
