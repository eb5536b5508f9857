"""Runs attempts. Each attempt has one asyncio task, from its start to its outcome.

This code runs once per job, so it must be fast. `benchmarks/worker_cost.py` measures it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterable, Sequence
from typing import Any

from tidemill.clock import Entropy
from tidemill.core.outcomes import FinalFailure, JobRelease, Outcome, Success
from tidemill.tasks.context import ATTEMPT_WAITS, Context
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.telemetry.current_attempt import CURRENT_ATTEMPT, CURRENT_BATCH
from tidemill.telemetry.events import AttemptStopped, JobStarted, LeaseExpired
from tidemill.worker.attempt import Attempt, CancelReason
from tidemill.worker.batch_attempt import BatchAttempt
from tidemill.worker.batch_outcomes import check_results
from tidemill.worker.cancellation import AttemptStopper, OutcomeDecider
from tidemill.worker.event_emitter import EventEmitter
from tidemill.worker.handler_threads import HandlerThreads
from tidemill.worker.in_flight import InFlight, Slots
from tidemill.worker.invocation import (
    HandlerInvoker,
    check_start,
    decode_arguments,
    fill_flow_inputs,
    is_missing_needs,
    reserve_needs,
)
from tidemill.worker.isolation.runner import Isolation
from tidemill.worker.metrics import WorkerStats
from tidemill.worker.outbox import DispatchSignal, Outbox
from tidemill.worker.outcomes import OutcomeSignal, describe_error, limit_result_size
from tidemill.worker.result_waits import SlotLender

_DONE = Success()


class Executor:
    """Starts attempts in free slots and puts ended attempts into the outbox.

    - `signal`: wakes the dispatcher if a slot becomes free without an outcome.
    - `state`: the value of `ctx.state`.
    - `isolated`: runs jobs in child processes; None if this is turned off."""

    def __init__(
        self,
        in_flight: InFlight,
        stats: WorkerStats,
        emitter: EventEmitter,
        *,
        slots: Slots,
        outbox: Outbox,
        signal: DispatchSignal,
        entropy: Entropy,
        threads: HandlerThreads,
        isolated: Isolation | None,
        middleware: Sequence[Middleware],
        state: Any,
    ) -> None:
        self._in_flight, self._slots, self._stats, self._emitter = in_flight, slots, stats, emitter
        self._outbox, self._signal = outbox, signal
        self._state, self._has_middleware = state, bool(middleware)
        self._starting = True
        self._loop = asyncio.get_running_loop()
        self._wants = emitter.wants
        self._clean_context = contextvars.copy_context()
        self._lender = SlotLender(in_flight, slots, on_slot_free=self._on_slot_free)
        self._clean_context.run(ATTEMPT_WAITS.set, self._lender)
        self._decider = OutcomeDecider(emitter, entropy)
        self._stopper = AttemptStopper(
            in_flight, stats, emitter, self._decider, conclude=self._conclude, context=self._clean_context
        )
        self.stop, self.abandon = self._stopper.stop, self._stopper.abandon
        self._deadlines = self._stopper.deadlines
        self._invoker = HandlerInvoker(
            self._stopper,
            threads,
            isolated,
            middleware,
            entropy=entropy,
            emitter=emitter,
            on_thread_end=self._on_thread_end,
        )

    def submit(self, attempts: Iterable[Attempt]) -> None:
        """Starts the attempts while slots are free, and keeps the attempts without a slot in the buffer. If
        the worker is stopping, releases all of them."""
        self._slots.buffered.extend(attempts)
        if self._starting:
            self.fill()
        else:
            self.release_unstarted()

    def fill(self) -> None:
        """Starts attempts from the buffer while slots are free. They were claimed before a slot was free for
        them."""
        slots = self._slots
        now = self._loop.time()
        while slots.buffered and slots.running < slots.concurrency:
            attempt = slots.buffered.popleft()
            if attempt.stop is None:
                slots.running += 1
                attempt.started = now
                # A slot is often filled from the task of the attempt that left it. Without a separate
                # context the next attempt would inherit the context variables of that handler.
                run = self._run_batch if attempt.is_batch else self._run
                attempt.task = self._loop.create_task(run(attempt), context=self._clean_context.copy())

    def stop_starting(self) -> None:
        """Releases the attempts in the buffer. From now on no attempt is started."""
        self._starting = False
        self.release_unstarted()

    def release_unstarted(self) -> None:
        """Releases the attempts in the buffer, which have not started, so that other workers can run their
        jobs."""
        buffered = self._slots.buffered
        while buffered:
            attempt = buffered.popleft()
            if attempt.stop is None:
                attempt.conclude(JobRelease())
                self._outbox.put_unstarted(attempt)
        self._signal.set()

    def lose(self, attempts: Iterable[Attempt]) -> None:
        """Cancels attempts whose claim is lost, unless they already have an outcome."""
        for attempt in attempts:
            if attempt.outcome is None:
                seconds = attempt.seconds(self._loop.time())
                self._emitter.attempt_event(AttemptStopped, attempt, seconds=seconds)
                self.stop(attempt, CancelReason.LOST)
                self._in_flight.forget(attempt)
        self._signal.set()

    def close(self) -> None:
        self._deadlines.close()

    async def _run(self, attempt: Attempt) -> None:
        definition = attempt.definition
        assert definition is not None  # noqa: S101 - an unknown task is never started
        job = attempt.job
        attempt.begun = True
        CURRENT_ATTEMPT.set(job)
        try:
            if attempt.stop is not None:
                raise asyncio.CancelledError  # noqa: TRY301 - stopped between its start and its first step
            if job.flow is not None or self._wants(JobStarted):
                await self._prepare(attempt)
            if self._has_middleware or not definition.is_async or definition.isolate or job.crashes:
                result = await self._invoker.run(attempt, definition, self._context(attempt))
            else:
                attempt.deadline = deadline = attempt.started + (job.timeout or definition.timeout)
                if deadline < self._deadlines.soonest:
                    self._deadlines.arm(deadline)
                args, kwargs = decode_arguments(definition, job)
                check_start(attempt)
                if definition.takes_context:
                    result = await definition.handler(self._context(attempt), *args, **kwargs)
                else:
                    result = await definition.handler(*args, **kwargs)
            outcome: Outcome | None = _DONE if result is None else _encode_result(definition, result)
        except asyncio.CancelledError as error:
            outcome = self._decider.cancelled(attempt, error)
        except (
            KeyboardInterrupt,
            GeneratorExit,
        ):  # the process or the loop is ending: not the handler's error
            raise
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, a Rust panic too
            outcome = self._decider.raised(definition, attempt, error)
        self._on_end(attempt, outcome)

    async def _prepare(self, attempt: Attempt) -> None:
        if self._wants(JobStarted):
            self._emitter.attempt_event(JobStarted, attempt, waited=self._emitter.waited(attempt))
        if attempt.job.flow is not None and attempt.job.flow.reads:
            self._stopper.watch(attempt)
            await fill_flow_inputs(attempt)
        if is_missing_needs(attempt):
            self._stopper.watch(attempt)
            await reserve_needs(attempt)

    async def _run_batch(self, batch: Attempt) -> None:
        """Runs a batch attempt, as `_run` runs the attempt of a single job. Afterwards `outcomes_by_job` has
        the outcomes of its jobs."""
        definition = batch.definition
        assert definition is not None  # noqa: S101 - an unknown task is never started
        assert isinstance(batch, BatchAttempt)  # noqa: S101 - asked by fill
        try:
            await self._fill_inputs(batch)
            batch.begin()
            if batch.stop is not None:
                raise asyncio.CancelledError  # noqa: TRY301 - stopped between its start and its first step
            outcome: Outcome | None = await self._results(batch, definition) if batch.runs else JobRelease()
        except asyncio.CancelledError as error:
            outcome = self._decider.cancelled(batch, error)
        except (
            KeyboardInterrupt,
            GeneratorExit,
        ):  # the process or the loop is ending: not the handler's error
            raise
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, a Rust panic too
            outcome = self._decider.raised(definition, batch, error)
        self._on_end(batch, outcome)

    async def _fill_inputs(self, batch: BatchAttempt) -> None:
        """Loads the items that are results of other flow steps. If an item cannot be loaded, only its job
        ends."""
        for member in batch.members:
            if member.job.flow is not None and member.job.flow.reads and member.stop is None:
                self._stopper.watch(batch)
                try:
                    await fill_flow_inputs(member)
                except OutcomeSignal as end:
                    batch.outcomes_by_job[member.job.id] = end.outcome

    async def _results(self, batch: BatchAttempt, definition: TaskDefinition) -> Outcome:
        CURRENT_ATTEMPT.set(batch.runs[0].job)
        CURRENT_BATCH.set(batch.jobs)
        if self._wants(JobStarted):
            for member in batch.runs:
                self._emitter.attempt_event(JobStarted, member, waited=self._emitter.waited(member))
        context = self._context(batch)
        results = check_results(await self._invoker.run(batch, definition, context), len(batch.runs))
        if batch.usage is not None:
            batch.usage.has_answer = True
        return self._decider.returned(definition, batch, results)

    def _on_end(self, attempt: Attempt, outcome: Outcome | None) -> None:
        slots = self._slots
        attempt.task = None
        attempt.ended = self._loop.time()
        if attempt.expired:
            self._emit_expired(attempt.runs if isinstance(attempt, BatchAttempt) else [attempt])
        if attempt.outcome is not None:  # settled when it was abandoned
            self._stats.stuck -= 1
            self._signal.set()
        elif attempt.stop is CancelReason.LOST or outcome is None:
            self._stats.lost += not attempt.is_batch  # the lost members of a batch were counted before
            self._signal.set()
            if attempt.usage is not None:  # the units it used are settled anyway (I6)
                self._conclude(attempt, JobRelease())
        else:
            self._conclude(attempt, outcome)
        if self._lender.open:
            self._lender.attempt_ended(attempt)
        if not attempt.thread_running:
            slots.running -= 1
            if slots.buffered:
                self.fill()

    def _emit_expired(self, attempts: Sequence[Attempt]) -> None:
        self._stats.expired += len(attempts)
        for attempt in attempts:
            late = attempt.boot() - attempt.leased_until
            self._emitter.attempt_event(LeaseExpired, attempt, late=late)

    def _on_slot_free(self) -> None:
        self.fill()
        self._signal.set()

    def _on_thread_end(self, attempt: Attempt) -> None:
        attempt.thread_running = False
        self._stats.stuck -= 1
        self._slots.running -= 1
        self._on_slot_free()

    def _conclude(self, attempt: Attempt, outcome: Outcome) -> None:
        attempt.conclude(outcome if attempt.job.flow is None else limit_result_size(outcome))
        self._outbox.put(attempt)

    def _context(self, attempt: Attempt) -> Context:
        if isinstance(attempt, BatchAttempt):
            first, batch = attempt.runs[0].job, tuple(job.id for job in attempt.jobs)
            return Context.of(first, attempt, self._state, batch=batch)
        return Context.of(attempt.job, attempt, self._state)


def _encode_result(definition: TaskDefinition, result: Any) -> Outcome:
    try:
        return Success(definition.result.encode(result))
    except Exception as error:  # noqa: BLE001 - encoding runs a user's own methods
        return FinalFailure(describe_error(error), "result cannot be stored")
