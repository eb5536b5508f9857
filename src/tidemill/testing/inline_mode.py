"""Inline mode: enqueueing runs the handler at once, in the same call.

Use it for tests of code that enqueues jobs as a side effect. The test starts no worker and waits for nothing.
There are no retries and no delays, and the caller gets the handler's error.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from tidemill.app import Tidemill
from tidemill.client.job_handle import JobHandle
from tidemill.client.request import JobRequest
from tidemill.core.claims import ClaimedJob, ClaimRequest, Heartbeat, HeldJob, LogEntry, Settlement
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error
from tidemill.core.operator_changes import RunJobsNow
from tidemill.core.outcomes import FinalFailure, Outcome, Success
from tidemill.core.queues import DAY_SECONDS
from tidemill.core.retry import NO_RETRY
from tidemill.errors import ConfigurationError, GiveUp, SnoozeFor
from tidemill.hooks.watched_call import BEGIN_CALL
from tidemill.tasks.batches import FailedItem
from tidemill.tasks.context import Context, JobTransaction, no_database_error
from tidemill.tasks.definition import TaskDefinition
from tidemill.tasks.steps import StepRunner
from tidemill.tasks.usage import UsageMeter
from tidemill.telemetry.current_attempt import CURRENT_ATTEMPT
from tidemill.testing.clocks import KitClock
from tidemill.testing.job_assertions import JobAssertions
from tidemill.testing.kit_environment import UNSET, KitEnvironment, check_app
from tidemill.testing.virtual_loop import START_TIME, call_without_loop, run_on_new_loop
from tidemill.worker.attempt import replace_unstorable
from tidemill.worker.batch_outcomes import check_results
from tidemill.worker.checkpoints import WorkerCheckpoints
from tidemill.worker.outcomes import outcome_of_error
from tidemill.worker.usage import AttemptEnvironment, AttemptUsage

R = TypeVar("R")


class inline(JobAssertions):  # noqa: N801 - called like a function
    """Runs every job of the application in the call that enqueues it: `with testing.inline(app) as kit:`.

    It works in sync and async tests. By default, the call that enqueues the job raises the handler's error.
    With `errors="store"` the error is stored with the job, and `job.result()` raises JobFailed. `state`
    replaces the value of the application's lifespan (`ctx.state`).
    """

    def __init__(
        self, app: Tidemill, *, errors: Literal["raise", "store"] = "raise", state: Any = UNSET
    ) -> None:
        check_app(app)
        if errors not in ("raise", "store"):
            raise ConfigurationError(f'errors: must be "raise" or "store", is {errors!r}')
        super().__init__(KitEnvironment(app, KitClock(START_TIME), state=state))
        self._raises = errors == "raise"
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            entered.enter_context(self._environment.use_store())
            entered.callback(call_without_loop, self._app.close_sync)
            entered.callback(self._leave_client)
            self._enter_client()
            self._entered = entered.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.close()

    def _enter_client(self) -> None:
        """Replaces the four enqueue methods of the client object. Tasks keep a reference to the client, so
        they use the new methods."""
        client = self._app.client
        self._send, self._send_sync = client.enqueue, client.enqueue_sync
        self._send_many, self._send_many_sync = client.enqueue_many, client.enqueue_many_sync
        vars(client).update(
            enqueue=self._enqueue,
            enqueue_sync=self._enqueue_sync,
            enqueue_many=self._enqueue_many,
            enqueue_many_sync=self._enqueue_many_sync,
        )

    def _leave_client(self) -> None:
        for name in ("enqueue", "enqueue_sync", "enqueue_many", "enqueue_many_sync"):
            del vars(self._app.client)[name]

    async def _enqueue(self, request: JobRequest[R]) -> JobHandle[R]:
        handle = await self._send(request)
        await self._run([handle])
        return handle

    def _enqueue_sync(self, request: JobRequest[R]) -> JobHandle[R]:
        handle = self._send_sync(request)
        run_on_new_loop(self._run([handle]))
        return handle

    async def _enqueue_many(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        handles = await self._send_many(requests)
        await self._run(handles)
        return handles

    def _enqueue_many_sync(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        handles = self._send_many_sync(requests)
        run_on_new_loop(self._run(handles))
        return handles

    async def _run(self, handles: Iterable[JobHandle[Any]]) -> None:
        for handle in handles:
            if not handle.existing:
                await self._run_one(handle.id)

    async def _run_one(self, id_: str) -> None:
        """Runs one job. A job that cannot start (its queue is paused or at its limit) stays as it is."""
        store = self._environment.store_handle
        await store.amend(Filter(ids=(id_,)), RunJobsNow())
        # One worker per job: a heartbeat that omits a held job loses it, and a handler may enqueue more
        # jobs.
        worker = f"inline {id_}"
        request = ClaimRequest(worker=worker, number=1, shares=(), limit=1, lease=DAY_SECONDS, ids=(id_,))
        error: BaseException | None = None
        for job in (await store.claim(request)).jobs:
            reports = _InlineReports(self._spending(job), self._metering(), job)
            outcome, error = await self._outcome(job, reports)
            await store.extend(reports.as_heartbeat(worker, job))
            spent = reports.usage.spent(outcome)
            await store.settle([Settlement(job.id, job.fence, job.claim, outcome, spent)])
        # Removes the worker from the list.
        await store.extend(Heartbeat(worker=worker, received=1, lease=0.0))
        if error is not None and self._is_raised_to_caller(error):
            raise error

    def _metering(self) -> AttemptEnvironment:
        clock, loop = self._environment.clock, asyncio.get_running_loop()
        return AttemptEnvironment(self._app.pools, self._environment.store_handle, clock.wall, loop)

    def _spending(self, job: ClaimedJob) -> AttemptUsage:
        own = self._app.classifiers
        return AttemptUsage(self._metering(), job, lambda: math.inf, made=True, classifiers=own)

    def _is_raised_to_caller(self, error: BaseException) -> bool:
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            return True  # meant for the test, not for the job
        return self._raises and not isinstance(error, SnoozeFor)

    async def _outcome(
        self, job: ClaimedJob, reports: _InlineReports
    ) -> tuple[Outcome, BaseException | None]:
        definition = self._app.tasks[job.task]
        try:
            result = await self._attempt(job, definition, reports)
            if definition.batch is not None:
                [result] = check_results(result, 1)
            if isinstance(result, FailedItem):
                return _item_failure(result)
            return Success(definition.result.encode(result)), None
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, and its job must end
            return outcome_of_error(error, NO_RETRY, job.attempt, job.priority, 0.0), error

    async def _attempt(self, job: ClaimedJob, definition: TaskDefinition, reports: _InlineReports) -> Any:
        lifespan = self._app._lifespan or nullcontext  # noqa: SLF001 - inline mode replaces the worker
        async with lifespan() as state:
            context = Context.of(job, reports, state, batch=() if definition.batch is None else (job.id,))
            call: Callable[[], Awaitable[Any]] = partial(_call_handler, definition, job, context)
            for around in reversed(self._app.middlewares):
                call = partial(around, context, call)
            before, calls = CURRENT_ATTEMPT.set(job), BEGIN_CALL.set(reports.usage.meter.begin_call)
            try:
                return await call()
            finally:
                CURRENT_ATTEMPT.reset(before)
                BEGIN_CALL.reset(calls)


def _item_failure(failed: FailedItem) -> tuple[Outcome, BaseException]:
    """Returns the outcome of a job whose batch handler returned `failed`, and the error to raise in the call
    that enqueued the job."""
    return FinalFailure(Error("FailedItem", replace_unstorable(failed.reason))), GiveUp(failed.reason)


async def _call_handler(definition: TaskDefinition, job: ClaimedJob, context: Context) -> Any:
    args, kwargs = definition.payload.decode(job.payload)
    if definition.batch is not None:
        args = (list(args),)  # a batch of one: inline mode does not wait for more jobs
    if definition.takes_context:
        args = (context, *args)
    if definition.is_async:
        return await definition.handler(*args, **kwargs)
    return call_without_loop(definition.handler, *args, **kwargs)


class _InlineReports:
    """Collects the progress, log lines and usage that a handler reports during its attempt."""

    def __init__(self, usage: AttemptUsage, environment: AttemptEnvironment, job: ClaimedJob) -> None:
        self.usage = usage
        self._steps = WorkerCheckpoints(environment, job).steps
        self._lines: list[str] = []
        self._progress: tuple[float | None, str | None] = (None, None)

    def progress(self, fraction: float, note: str | None) -> None:
        self._progress = (fraction, note)

    def log(self, line: str) -> None:
        self._lines.append(line)

    def cancelled(self) -> bool:
        return False

    def meter(self) -> UsageMeter:
        return self.usage.meter

    def steps(self) -> StepRunner:
        return self._steps

    def transaction(self) -> AbstractAsyncContextManager[JobTransaction]:
        raise no_database_error()

    def as_heartbeat(self, worker: str, job: ClaimedJob) -> Heartbeat:
        fraction, note = self._progress
        lines = tuple(LogEntry(replace_unstorable(line)) for line in self._lines)
        held = HeldJob(job=job.id, fence=job.fence, claim=job.claim, progress=fraction, note=note, log=lines)
        return Heartbeat(worker=worker, received=1, lease=DAY_SECONDS, held=(held,))
