"""Runs jobs in child processes. A hard timeout can be enforced only in a child process.

Child processes run tasks with `isolate=True`, which never run in the worker. They also run every job that was
running when its process died, because it may kill its process again. If no child can run such a job, it runs
in the worker."""

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
from tidemill.core.jobs import Error
from tidemill.core.outcomes import Crash, FinalFailure, Outcome
from tidemill.core.retry import Retry
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.current_attempt import CURRENT_ATTEMPT
from tidemill.times import to_seconds
from tidemill.worker.attempt import Attempt
from tidemill.worker.batch_attempt import BatchAttempt
from tidemill.worker.batch_outcomes import BatchItem, BatchOutcome
from tidemill.worker.isolation.handler_import import CANNOT_ISOLATE, CannotIsolate, find_handler_path
from tidemill.worker.isolation.messages import HandlerPath, PrepareRequest, RunRequest
from tidemill.worker.isolation.process import CLOSE_TIMEOUT_SECONDS, IsolatedProcess
from tidemill.worker.isolation.result_waits import ProcessWaits
from tidemill.worker.isolation.spawn import ChildDeath, SpawnError
from tidemill.worker.outcomes import OutcomeSignal

START_TIMEOUT_SECONDS = 60.0
FIRST_RETRY_SECONDS = 5.0
MAX_RETRY_SECONDS = 300.0
MAX_DOUBLINGS = 10
"""Limit of the backoff's exponent. A lifespan may fail for weeks, and 2 ** 1100 is no float."""
MAX_START_FAILURES = 3
"""After this many failed starts in a row, suspects run in the worker and isolated tasks without the
lifespan."""

IsolatedResult = Outcome | list[BatchItem] | BatchOutcome
"""The last two belong to a batch."""


class ChildStartError(Exception):
    """Raised if no child process could be prepared for a job.

    - `retry_in`: seconds until the next try.
    - `is_new`: False if no start was tried, because the delay after an earlier failure has not passed."""

    def __init__(self, problem: str, retry_in: float, *, is_new: bool) -> None:
        super().__init__(problem)
        self.problem, self.retry_in, self.is_new = problem, retry_in, is_new


class Isolation(Protocol):
    """The interface through which the worker runs jobs in child processes. Simulations implement it too.

    - `runs_middleware`: True if the child runs the application's middleware.
    - `run`: runs one job. It calls `started` just before the handler begins.
    - `lifespan_problem`: why the handler runs without the lifespan. Read it only inside `started`."""

    @property
    def runs_middleware(self) -> bool: ...
    @property
    def lifespan_problem(self) -> str | None: ...

    async def run(
        self,
        attempt: Attempt,
        definition: TaskDefinition,
        chance: float,
        started: Callable[[], None],
        middleware: int,
    ) -> IsolatedResult: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


class IsolatedRunner:
    """Runs jobs in child processes, at most `limit` at once, and reuses the processes.

    - `find_application`: returns the import path of the application, or None if a child cannot import it. It
      is itself None for a worker without an application.
    - `shares_store`: False if the jobs are in the worker's memory."""

    def __init__(
        self,
        limit: int,
        find_application: Callable[[], str | None] | None = None,
        *,
        shares_store: bool = True,
    ) -> None:
        self._slots = asyncio.Semaphore(limit)
        self._resumed = 0
        self._find_application, self._shares_store = find_application, shares_store
        self._clock = SystemClock()
        self.lifespan_problem: str | None = None
        self._free: list[IsolatedProcess] = []
        self._all: set[IsolatedProcess] = set()
        self._loop = asyncio.get_running_loop()
        self._failures = 0
        self._problem, self._not_before = "", 0.0
        # A process that exits without closing its worker must not wait for its children.
        atexit.register(self.close)

    @property
    def runs_middleware(self) -> bool:
        return self._application is not None

    async def run(
        self,
        attempt: Attempt,
        definition: TaskDefinition,
        chance: float,
        started: Callable[[], None],
        middleware: int,
    ) -> IsolatedResult:
        """Runs the job in a child process and returns its outcome.

        - `chance`: a random number between 0 and 1 for the retry delay.
        - `started`: is called just before the handler. The timeout counts from then.
        - `middleware`: how many middleware functions the child should find.

        Raises `CannotIsolate` if no child can run the handler, and `ChildStartError` if no child could be
        prepared. An error of `started` is passed on."""
        expected = None if definition.isolate else middleware
        prepare = PrepareRequest(definition.name, self._handler_path(definition), expected)
        async with self._process_slot():
            try:
                process = await self._ready_process(prepare, definition)
                outcome = await self._run_in(process, definition, attempt, chance, started)
            except ChildDeath as error:
                attempt.committed = None  # the store knows whether the process has committed
                return Crash(Error("ProcessDied", str(error)))
            if isinstance(outcome, FinalFailure) and outcome.reason == CANNOT_ISOLATE:
                raise CannotIsolate(outcome.error.message)
            return outcome

    async def _run_in(
        self,
        process: IsolatedProcess,
        definition: TaskDefinition,
        attempt: Attempt,
        chance: float,
        started: Callable[[], None],
    ) -> IsolatedResult:
        waits = ProcessWaits(attempt, self._set_slot_lent)
        try:
            self.lifespan_problem = None if process.lifespan else self._problem
            started()
            message = _make_run_request(definition, attempt, chance, self._clock.boot())
            outcome = await process.run(message, attempt, waits)
        except ChildDeath:
            raise
        except BaseException as error:  # cancelled, or the units are too old
            if isinstance(error, OutcomeSignal) or process.stopped:
                self._release_process(process)
            else:
                attempt.committed = None
                process.kill()
            raise
        finally:
            waits.close()
        self._release_process(process)
        return outcome

    async def drain(self) -> None:
        """Asks idle processes to close their lifespans and end, and waits up to 5 seconds. `close` kills the
        processes that are left."""
        processes = list(self._free)
        for process in processes:
            process.close_when_idle()
        if processes:
            waits = [asyncio.ensure_future(process.ended.wait()) for process in processes]
            await asyncio.wait(waits, timeout=CLOSE_TIMEOUT_SECONDS)

    def close(self) -> None:
        atexit.unregister(self.close)
        for process in self._all:
            process.kill()

    @asynccontextmanager
    async def _process_slot(self) -> AsyncIterator[None]:
        await self._slots.acquire()
        try:
            yield
        finally:
            if self._resumed:
                self._resumed -= 1
            else:
                self._slots.release()

    def _set_slot_lent(self, lent: bool) -> None:
        """Lets one more child process run while a handler in a child process waits for another job. `lent` is
        True when the wait begins, and False when it has ended."""
        if lent:
            self._slots.release()
        else:
            self._resumed += 1  # the handler continues at once; the next free slot is not reused

    @functools.cached_property
    def _application(self) -> str | None:
        return None if self._find_application is None else self._find_application()

    def _handler_path(self, definition: TaskDefinition) -> HandlerPath | None:
        """Returns the handler's import path. Returns None if the child must find the task by name in the
        application.

        Raises `CannotIsolate` if a child cannot run the handler."""
        if not self._shares_store and not definition.isolate:
            raise CannotIsolate("the jobs are in the worker's memory, which another process cannot reach")
        is_missing = self._find_application is not None and self._application is None
        if is_missing and not definition.isolate:
            raise CannotIsolate(
                "the application is not a variable of a module, so another process cannot open its lifespan"
            )
        try:
            return find_handler_path(definition)
        except CannotIsolate:
            if self._application is None:
                raise
            return None

    async def _ready_process(self, prepare: PrepareRequest, definition: TaskDefinition) -> IsolatedProcess:
        """Returns a process that has found the handler and opened the lifespan.

        After 3 failed starts in a row, a task with `isolate=True` gets a process without the lifespan. For a
        task without `isolate=True`, `CannotIsolate` is raised."""
        wait = self._not_before - self._loop.time()
        if self._failures < MAX_START_FAILURES:
            if wait > 0:
                raise ChildStartError(self._problem, wait, is_new=False)
            return await self._prepared(prepare, definition)
        if not definition.isolate:
            raise CannotIsolate(self._problem)
        if wait <= 0:
            with contextlib.suppress(ChildStartError):
                return await self._prepared(prepare, definition)
        return await self._prepared(msgspec.structs.replace(prepare, lifespan=False), definition)

    async def _prepared(self, prepare: PrepareRequest, definition: TaskDefinition) -> IsolatedProcess:
        process = self._take(lifespan=prepare.lifespan)
        try:
            await self._prepare(process, prepare, definition)
        except CannotIsolate:
            self._release_process(process)
            raise
        except ChildDeath:
            raise
        except BaseException:
            process.kill()
            raise
        return process

    async def _prepare(
        self, process: IsolatedProcess, prepare: PrepareRequest, definition: TaskDefinition
    ) -> None:
        try:
            async with asyncio.timeout(START_TIMEOUT_SECONDS):
                ready = await process.prepare(prepare)
        except TimeoutError:
            raise self._start_failed(f"starting took more than {START_TIMEOUT_SECONDS:g} seconds") from None
        except ChildDeath as error:
            if definition.isolate and not isinstance(
                error, SpawnError
            ):  # its import may be what kills the process
                raise
            raise self._start_failed(str(error)) from None
        if not ready.opened:
            raise self._start_failed(f"the lifespan raised {ready.problem}")
        if ready.problem is not None:
            raise CannotIsolate(ready.problem)
        if process.lifespan:
            self._failures = 0

    def _start_failed(self, problem: str) -> ChildStartError:
        wait = min(FIRST_RETRY_SECONDS * 2 ** min(self._failures, MAX_DOUBLINGS), MAX_RETRY_SECONDS)
        self._failures += 1
        self._problem, self._not_before = problem, self._loop.time() + wait
        return ChildStartError(problem, wait, is_new=True)

    def _release_process(self, process: IsolatedProcess) -> None:
        process.give_back()
        self._free.append(process)

    def _take(self, *, lifespan: bool) -> IsolatedProcess:
        while self._free:
            process = self._free.pop()
            if lifespan and not process.lifespan:
                process.close_when_idle()
            elif process.take():
                return process
        process = IsolatedProcess(self._all.discard, self._application, lifespan=lifespan)
        self._all.add(process)
        return process


def _make_run_request(
    definition: TaskDefinition, attempt: Attempt, chance: float, began: float
) -> RunRequest:
    environment = attempt.environment
    job, *others = attempt.jobs if isinstance(attempt, BatchAttempt) else (attempt.job,)
    known = CURRENT_ATTEMPT.get()
    if known is not None and known.id == job.id:
        job = known  # with the trace that middleware set
    return RunRequest(
        job=job,
        chance=chance,
        policy=_policy_fields(definition.retry),
        pools={
            need.pool: environment.pools[need.pool] for need in job.needs if need.pool in environment.pools
        },
        began=began,
        wall=environment.wall(),
        timeout=attempt.timeout,
        late_in=attempt.usage_sink().late_at() - environment.loop.time() if job.needs else math.inf,
        others=tuple(others),
    )


def _policy_fields(retry: Retry) -> dict[str, int | float | str]:
    """Returns the fields of the retry policy that can be sent: numbers and text."""
    policy = {name: to_seconds(value) for name, value in msgspec.structs.asdict(retry).items()}
    return {name: value for name, value in policy.items() if isinstance(value, int | float | str)}


def isolation_failure(problem: str) -> Outcome:
    sentence = f"this job must run in a process of its own, and cannot: {problem}"
    return FinalFailure(Error("CannotIsolate", sentence), CANNOT_ISOLATE)
