"""Timeouts and cancellation of running attempts, and the outcomes of attempts that raised."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from typing import Any

from tidemill.clock import Entropy
from tidemill.core.outcomes import JobRelease, Outcome, SmallerBatch
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.events import BatchSplit, SlotStuck
from tidemill.worker.attempt import CLEANUP_SECONDS, Attempt, CancelReason
from tidemill.worker.batch_attempt import BatchAttempt
from tidemill.worker.batch_outcomes import BatchSplitter, decide_batch_error, decide_results
from tidemill.worker.event_emitter import EventEmitter
from tidemill.worker.in_flight import InFlight
from tidemill.worker.metrics import WorkerStats
from tidemill.worker.outcomes import decide_refusal, outcome_of_error, timeout_outcome

DEADLINE_PRECISION_SECONDS = 0.005
"""Deadlines closer together than this are handled by one timer call, which limits its cost."""


class DeadlineTimer:
    """One timer for the deadlines of all running attempts. It calls `due` with each attempt whose deadline
    has passed.

    - `held`: a function that returns the running attempts.
    - `soonest`: when the timer fires next. Call `arm` after you set an earlier deadline.
    - `context`: the context in which `due` runs."""

    def __init__(
        self, held: Callable[[], Iterable[Attempt]], due: Callable[[Attempt], None], context: Context
    ) -> None:
        self._held = held
        self._due = due
        self._context = context
        self._timer: asyncio.TimerHandle | None = None
        self.soonest = math.inf

    def arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.soonest = deadline
        self._timer = asyncio.get_running_loop().call_at(deadline, self._fire, context=self._context)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.soonest = math.inf

    def _fire(self) -> None:
        now = asyncio.get_running_loop().time()
        self.soonest = math.inf
        self._timer = None
        for attempt in list(self._held()):
            if attempt.deadline <= now:
                self._due(attempt)
        next_deadline = min((attempt.deadline for attempt in self._held()), default=math.inf)
        if next_deadline < self.soonest:
            self.arm(max(next_deadline, now + DEADLINE_PRECISION_SECONDS))


class OutcomeDecider:
    """Decides the outcomes of attempts that raised, timed out or were cancelled, and of batches.

    Create it in the worker's main task. If that task is cancelled, the jobs of cancelled handlers are
    released and do not count as failed."""

    def __init__(self, emitter: EventEmitter, entropy: Entropy) -> None:
        self._emitter, self._entropy = emitter, entropy
        self._worker = asyncio.current_task()
        self._splits = BatchSplitter()

    def raised(self, definition: TaskDefinition, attempt: Attempt, error: BaseException) -> Outcome:
        job, usage = attempt.job, attempt.usage
        if usage is not None and usage.late:
            return JobRelease()
        if isinstance(attempt, BatchAttempt):
            return self._split_batch(definition, attempt, error)
        refusal = None if usage is None else decide_refusal(usage.meter, error, job)
        if refusal is not None and not refusal.overloaded:
            return refusal.outcome
        failed = outcome_of_error(error, definition.retry, job.attempt, job.priority, self._entropy.chance())
        if refusal is None:
            return failed
        attempt.charged = failed
        return refusal.outcome

    def cancelled(self, attempt: Attempt, error: asyncio.CancelledError) -> Outcome | None:
        """Returns the outcome of an attempt that ended with CancelledError. Returns None if its claim is
        lost."""
        match attempt.stop:
            case CancelReason.TIMEOUT:
                return self.timed_out(attempt)
            case CancelReason.DRAIN:
                return JobRelease()
            case CancelReason.LOST:
                return None
            case None if self._worker_is_ending:  # the loop cancels every task with it
                return JobRelease()
            case None:  # the handler awaited something that was cancelled: its own failure
                assert attempt.definition is not None  # noqa: S101 - it ran
                return self.raised(attempt.definition, attempt, error)

    def timed_out(self, attempt: Attempt) -> Outcome:
        definition = attempt.definition
        assert definition is not None  # noqa: S101 - it ran
        seconds, chance = attempt.timeout, self._entropy.chance()
        jobs = attempt.jobs if isinstance(attempt, BatchAttempt) else (attempt.job,)
        outcomes = [
            timeout_outcome(seconds, definition.retry, job.attempt, job.priority, chance) for job in jobs
        ]
        return attempt.set_outcomes(outcomes) if isinstance(attempt, BatchAttempt) else outcomes[0]

    def returned(self, definition: TaskDefinition, batch: BatchAttempt, results: Sequence[Any]) -> Outcome:
        """Sets the outcomes of a batch whose handler returned one result per job, and returns the first
        outcome."""
        self._splits.note_success(batch.job, len(batch.runs))
        chance = self._entropy.chance()
        return batch.set_outcomes(
            decide_results(results, definition.result, batch.jobs, definition.retry, chance)
        )

    def _split_batch(self, definition: TaskDefinition, batch: BatchAttempt, error: BaseException) -> Outcome:
        """Sets the outcomes of a batch whose handler raised, and returns the first outcome. The batch is
        split if a single item may have caused the error."""
        assert definition.batch is not None  # noqa: S101 - or it would be no call
        meter = None if batch.usage is None else batch.usage.meter
        jobs, chance = batch.jobs, self._entropy.chance()
        verdict = decide_batch_error(error, meter, jobs, definition.retry, chance)
        outcomes = self._splits.outcomes(batch.job, jobs, verdict, definition.batch.on_error)
        parts = {outcome.part for outcome in outcomes if isinstance(outcome, SmallerBatch)}
        if parts and verdict.error is not None:
            fields = {"error": verdict.error.type, "message": verdict.error.message}
            self._emitter.attempt_event(BatchSplit, batch, jobs=len(jobs), parts=len(parts), **fields)
        return batch.set_outcomes(outcomes, verdict.charged)

    @property
    def _worker_is_ending(self) -> bool:
        return self._worker is not None and self._worker.cancelling() > 0


class AttemptStopper:
    """Cancels attempts. If the code of an attempt does not stop in time, the attempt is settled although its
    code still runs.

    - `conclude`: the function that records the outcome of an attempt.
    - `context`: the context in which the deadline timer calls its functions."""

    def __init__(
        self,
        in_flight: InFlight,
        stats: WorkerStats,
        emitter: EventEmitter,
        decider: OutcomeDecider,
        *,
        conclude: Callable[[Attempt, Outcome], None],
        context: Context,
    ) -> None:
        self._stats, self._emitter, self._decider, self._conclude = stats, emitter, decider, conclude
        self._loop = asyncio.get_running_loop()
        self.deadlines = DeadlineTimer(in_flight.under_way, self._overdue, context)

    def stop(self, attempt: Attempt, why: CancelReason) -> None:
        """Cancels an attempt for the reason `why`. An attempt that has not started will never start.

        A batch continues until all its jobs have lost their claims."""
        if why is CancelReason.LOST and attempt.committed is not None:
            return
        if isinstance(attempt.batch, BatchAttempt):
            if why is CancelReason.LOST and attempt.stop is None:
                attempt.stop = why
                self._stats.lost += 1
            if why is CancelReason.LOST and not attempt.batch.is_lost:
                return
            attempt = attempt.batch
        if attempt.stop is None and attempt.outcome is None:
            attempt.stop = why
            # A task that is cancelled before it runs could not free its slot.
            if attempt.begun and attempt.task is not None:
                attempt.task.cancel()

    def abandon(self, attempt: Attempt, outcome: Outcome) -> None:
        """Settles an attempt with `outcome` although its code still runs. The attempt keeps its slot until
        its code ends."""
        attempt = attempt.batch or attempt
        if attempt.outcome is None:
            self.stuck(attempt)
            self._conclude(attempt, outcome)

    def stuck(self, attempt: Attempt) -> None:
        self._stats.stuck += 1
        self._emitter.attempt_event(SlotStuck, attempt, seconds=self._loop.time() - attempt.started)

    def watch(self, attempt: Attempt) -> None:
        """Starts the attempt's timeout now. Call it when the handler starts. An attempt that was already
        cancelled keeps its deadline."""
        if attempt.stop is not None:
            return
        attempt.deadline = deadline = self._loop.time() + attempt.timeout
        if deadline < self.deadlines.soonest:
            self.deadlines.arm(deadline)

    def mark_queued(self, attempt: Attempt) -> None:
        """Removes the deadline of an attempt that waits for a free thread or process."""
        if attempt.stop is None:
            attempt.deadline = math.inf

    def _overdue(self, attempt: Attempt) -> None:
        """Cancels an attempt whose deadline has passed. If its code still runs CLEANUP_SECONDS later, settles
        the attempt as timed out."""
        if attempt.stop is None and attempt.outcome is None:
            attempt.deadline += CLEANUP_SECONDS
            self.stop(attempt, CancelReason.TIMEOUT)
            return
        attempt.deadline = math.inf
        if attempt.stop is CancelReason.TIMEOUT:
            self.abandon(attempt, self._decider.timed_out(attempt))
