"""What becomes of an attempt that did not just return."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tidemill.clock import Entropy
from tidemill.core.outcomes import Outcome, Release, Split
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.events import BatchSplit
from tidemill.worker import batch_verdicts as verdicts
from tidemill.worker.attempt import Attempt, Stop
from tidemill.worker.batch_splits import Splits
from tidemill.worker.call import Call
from tidemill.worker.emitter import Emitter
from tidemill.worker.refused import refused
from tidemill.worker.translate import outcome_of, timed_out


class Judge:
    """To be made in the worker's own task: when that is cancelled, everything on its loop is."""

    def __init__(self, emitter: Emitter, entropy: Entropy) -> None:
        self._emitter, self._entropy = emitter, entropy
        self._worker = asyncio.current_task()
        self._splits = Splits()

    def raised(self, definition: TaskDefinition, attempt: Attempt, error: BaseException) -> Outcome:
        job, spending = attempt.job, attempt.spending
        if spending is not None and spending.late:
            return Release()
        if isinstance(attempt, Call):
            return self._divided(definition, attempt, error)
        told = None if spending is None else refused(spending.meter, error, job)
        if told is not None and not told.overloaded:
            return told.outcome
        failed = outcome_of(error, definition.retry, job.attempt, job.priority, self._entropy.chance())
        if told is None:
            return failed
        attempt.charged = failed
        return told.outcome

    def cancelled(self, attempt: Attempt, error: asyncio.CancelledError) -> Outcome | None:
        """None: its claim is lost, and nobody wants to know."""
        match attempt.stop:
            case Stop.TIMEOUT:
                return self.timed_out(attempt)
            case Stop.DRAIN:
                return Release()
            case Stop.LOST:
                return None
            case None if self._worker_is_ending:  # and everything on its loop is cancelled with it
                return Release()
            case None:  # something the handler awaited was cancelled: its own failure
                assert attempt.definition is not None  # noqa: S101 - it ran
                return self.raised(attempt.definition, attempt, error)

    def timed_out(self, attempt: Attempt) -> Outcome:
        definition = attempt.definition
        assert definition is not None  # noqa: S101 - it ran
        seconds, chance = attempt.timeout, self._entropy.chance()
        jobs = attempt.jobs if isinstance(attempt, Call) else (attempt.job,)
        outcomes = [timed_out(seconds, definition.retry, job.attempt, job.priority, chance) for job in jobs]
        return attempt.judged(outcomes) if isinstance(attempt, Call) else outcomes[0]

    def answered(self, definition: TaskDefinition, call: Call, results: Sequence[Any]) -> Outcome:
        """A call that came back, with something for each of its jobs."""
        self._splits.went_well(call.job, len(call.runs))
        chance = self._entropy.chance()
        return call.judged(verdicts.answered(results, definition.result, call.jobs, definition.retry, chance))

    def _divided(self, definition: TaskDefinition, call: Call, error: BaseException) -> Outcome:
        """Jobs that are retried together get one wait: they may share their next call too."""
        assert definition.batch is not None  # noqa: S101 - or it would be no call
        meter = None if call.spending is None else call.spending.meter
        jobs, chance = call.jobs, self._entropy.chance()
        verdict = verdicts.raised(error, meter, jobs, definition.retry, chance)
        outcomes = self._splits.outcomes(call.job, jobs, verdict, definition.batch.on_error)
        parts = {outcome.part for outcome in outcomes if isinstance(outcome, Split)}
        if parts and verdict.error is not None:
            told = {"error": verdict.error.type, "message": verdict.error.message}
            self._emitter.attempt_event(BatchSplit, call, jobs=len(jobs), parts=len(parts), **told)
        return call.judged(outcomes, verdict.charged)

    @property
    def _worker_is_ending(self) -> bool:
        return self._worker is not None and self._worker.cancelling() > 0
