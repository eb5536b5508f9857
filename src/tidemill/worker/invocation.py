"""Calls a handler with its arguments, through middleware, and if necessary in a thread or an isolated
process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from tidemill.clock import Entropy
from tidemill.core.claims import ClaimedJob
from tidemill.core.jobs import Error
from tidemill.core.outcomes import FinalFailure, JobRelease, Snooze, Success
from tidemill.errors import InvalidJob, InvalidPayload, StoreError
from tidemill.tasks.context import Context
from tidemill.tasks.definition import Middleware, TaskDefinition, apply_middleware, split_middleware
from tidemill.telemetry.event_base import WorkerEvent
from tidemill.telemetry.events import ChildStartFailed, LifespanSkipped, SuspectNotIsolated
from tidemill.worker.attempt import Attempt
from tidemill.worker.batch_attempt import BatchAttempt
from tidemill.worker.batch_outcomes import BatchItem, BatchOutcome, BatchOutcomeSignal
from tidemill.worker.cancellation import AttemptStopper
from tidemill.worker.event_emitter import EventEmitter
from tidemill.worker.handler_threads import HandlerThreads
from tidemill.worker.isolation.handler_import import CannotIsolate
from tidemill.worker.isolation.runner import ChildStartError, Isolation, isolation_failure
from tidemill.worker.outcomes import OutcomeSignal, invalid_payload_outcome

INPUT_RETRY_SECONDS = 1.0


async def fill_flow_inputs(attempt: Attempt) -> None:
    """Replaces the references in a flow job's payload by the results of other steps.

    Raises `OutcomeSignal` if that is not possible. The signal contains the job's outcome."""
    from tidemill.flows.results import ResultMissing, ResultsTooLarge, fill_payload

    job = attempt.job
    assert job.flow is not None  # noqa: S101 - asked by the executor
    try:
        job.payload = await fill_payload(attempt.environment.store, job.flow, job.payload)
    except ResultMissing as error:
        raise OutcomeSignal(FinalFailure(Error("ResultMissing", str(error)), "result gone")) from None
    except ResultsTooLarge as error:
        raise OutcomeSignal(FinalFailure(Error("ResultsTooLarge", str(error)), "results too large")) from None
    except StoreError as error:
        reason = f"the results it takes could not be read: {error}"
        raise OutcomeSignal(Snooze(INPUT_RETRY_SECONDS, reason)) from None


def is_missing_needs(attempt: Attempt) -> bool:
    """True for a flow job that has no needs (the units to reserve), although its task uses pools."""
    job, task = attempt.job, attempt.definition
    return job.flow is not None and not job.needs and task is not None and bool(task.pools)


async def reserve_needs(attempt: Attempt) -> None:
    """Computes and reserves the needs of a job that was created without them.

    Raises `UnitsUnavailable` if the units are not free soon. Raises `OutcomeSignal` if the needs cannot be
    computed."""
    from tidemill.flows.job_builder import compute_late_needs

    task, job = attempt.definition, attempt.job
    assert task is not None  # noqa: S101 - asked by the executor
    try:
        needs = await compute_late_needs(attempt.environment.store, job, task)
    except InvalidJob as error:
        raise OutcomeSignal(FinalFailure(Error("InvalidJob", str(error)), "invalid payload")) from None
    except InvalidPayload as error:
        raise OutcomeSignal(invalid_payload_outcome(job, error)) from None
    except StoreError as error:
        raise OutcomeSignal(
            Snooze(INPUT_RETRY_SECONDS, f"what it costs could not be read: {error}")
        ) from None
    await attempt.meter().take(needs, task.pools)


class HandlerInvoker:
    """Calls handlers through their middleware: on the event loop, in a thread or in a child process.

    `on_thread_end`: is called when a thread ends later than its attempt."""

    def __init__(
        self,
        stopper: AttemptStopper,
        threads: HandlerThreads,
        isolated: Isolation | None,
        middleware: Sequence[Middleware],
        *,
        entropy: Entropy,
        emitter: EventEmitter,
        on_thread_end: Callable[[Attempt], None],
    ) -> None:
        self._stopper, self._threads, self._isolated = stopper, threads, isolated
        self._emitter = emitter
        self._emitted: set[tuple[type[WorkerEvent], str, str]] = set()
        self._middleware = tuple(middleware)
        self._worker_middleware, self._handler_middleware = split_middleware(middleware)
        self._entropy, self._on_thread_end = entropy, on_thread_end

    async def run(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Any:
        if self._isolated is not None and (definition.isolate or attempt.job.suspect):
            around = self._worker_middleware if self._isolated.runs_middleware else self._middleware
            call = apply_middleware(around, context, lambda: self._run_isolated(attempt, definition, context))
        else:
            around = self._middleware
            call = apply_middleware(around, context, lambda: self._run_here(attempt, definition, context))
        if around:  # middleware may hang before it calls the handler
            self._stopper.watch(attempt)
        result = await call()
        if attempt.usage is not None and attempt.usage.late:
            raise OutcomeSignal(JobRelease())  # middleware may have swallowed the signal
        return result

    def _run_here(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Awaitable[Any]:
        run = self._run_async if definition.is_async else self._run_in_thread
        return run(attempt, definition, context)

    async def _run_async(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Any:
        self._stopper.watch(attempt)
        args, kwargs = _decode_attempt_arguments(attempt, definition)
        if definition.takes_context:
            args = (context, *args)
        check_start(attempt)
        return await definition.handler(*args, **kwargs)

    async def _run_in_thread(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Any:
        args, kwargs = _decode_attempt_arguments(attempt, definition)
        if definition.takes_context:
            args = (context, *args)
        self._stopper.mark_queued(attempt)
        await self._threads.free()
        self._stopper.watch(attempt)
        try:
            check_start(attempt)
        except OutcomeSignal:
            self._threads.leave()
            raise
        call = self._threads.start(definition.handler, args, kwargs)
        try:
            return await call.future
        except asyncio.CancelledError:
            if not call.over:
                attempt.thread_running = True
                self._stopper.stuck(attempt)
                call.on_end = lambda: self._on_thread_end(attempt)
            raise

    async def _run_isolated(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Any:
        assert self._isolated is not None  # noqa: S101 - asked by `run`
        self._stopper.mark_queued(attempt)
        chance = self._entropy.chance()

        isolated = self._isolated

        def started() -> None:
            if isolated.lifespan_problem is not None:
                self._emit_once(LifespanSkipped, definition, isolated.lifespan_problem)
            self._stopper.watch(attempt)
            check_start(attempt)

        try:
            outcome = await self._isolated.run(
                attempt, definition, chance, started, len(self._handler_middleware)
            )
        except ChildStartError as error:
            if error.is_new:
                fields = {"problem": error.problem, "retry_in": error.retry_in}
                self._emitter.attempt_event(ChildStartFailed, attempt, **fields)
            raise OutcomeSignal(Snooze(error.retry_in, f"no process for it: {error.problem}")) from None
        except CannotIsolate as error:
            if definition.isolate:
                raise OutcomeSignal(isolation_failure(str(error))) from None
            # A suspect is more likely the neighbour of the job that crashed, so it does not fail. The store
            # counts its next crash as its own, in the worker too.
            self._emit_once(SuspectNotIsolated, definition, str(error))
            around = self._handler_middleware if self._isolated.runs_middleware else ()
            return await apply_middleware(
                around, context, lambda: self._run_here(attempt, definition, context)
            )()
        if isinstance(outcome, BatchOutcome):
            raise BatchOutcomeSignal(outcome)
        if isinstance(outcome, list):
            return [self._result_of(definition, item) for item in outcome]
        if self._middleware and isinstance(outcome, Success):
            return _decode_result(definition, outcome.result)
        raise OutcomeSignal(outcome)

    def _emit_once(self, kind: type[WorkerEvent], definition: TaskDefinition, problem: str) -> None:
        if (known := (kind, definition.name, problem)) not in self._emitted:
            self._emitted.add(known)
            self._emitter.worker_event(kind, task=definition.name, problem=problem)

    def _result_of(self, definition: TaskDefinition, item: BatchItem) -> Any:
        """Returns the result of one batch item that ran in a child process. A failed item is returned
        unchanged."""
        if not isinstance(item, Success):
            return item
        if self._middleware or item.result is None:
            return _decode_result(definition, item.result)
        return msgspec.Raw(item.result)


def check_start(attempt: Attempt) -> None:
    """Raises `OutcomeSignal`, which releases the job, if its lease has ended or its units were reserved too
    long ago."""
    if not attempt.is_leased:
        attempt.expired = True
        raise OutcomeSignal(JobRelease())
    if attempt.usage is not None and not attempt.usage.begin():
        raise OutcomeSignal(JobRelease())


def decode_arguments(definition: TaskDefinition, job: ClaimedJob) -> tuple[tuple[Any, ...], dict[str, Any]]:
    try:
        return definition.payload.decode(job.payload)
    except InvalidPayload as error:
        raise OutcomeSignal(invalid_payload_outcome(job, error)) from None


def _decode_attempt_arguments(
    attempt: Attempt, definition: TaskDefinition
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(attempt, BatchAttempt):
        return (attempt.items,), {}
    return decode_arguments(definition, attempt.job)


def _decode_result(definition: TaskDefinition, result: bytes | None) -> Any:
    """Returns the decoded result of a handler, for middleware. A result that does not match the return
    annotation is decoded to dicts, lists and strings."""
    try:
        return definition.result.decode(result)
    except Exception:  # noqa: BLE001 - decoding runs a user's own methods
        return msgspec.json.decode(result or b"null")
