"""Counts and tells how attempts ended, once the store has recorded it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidemill.contract.store import Store
from tidemill.core.job import Error
from tidemill.core.outcomes import Answer, Await, Crashed, Fail, Release, Retrying, Snooze, Split
from tidemill.core.states import State
from tidemill.telemetry.events import (
    FeedbackProblem,
    JobCrashed,
    JobDone,
    JobFailed,
    JobReleased,
    JobRetrying,
    JobSnoozed,
    OutcomeRefused,
    StartMissed,
)
from tidemill.worker.attempt import Attempt
from tidemill.worker.emitter import Emitter
from tidemill.worker.questions import look_up
from tidemill.worker.stats import Stats


class Endings:
    """`crashed` are attempts whose process died: whether that was one crash too many is the store's to
    say, and it is asked, because crashes are rare and every claim would have to carry the limit. `on_missed`
    is called with an attempt that came too late to start."""

    def __init__(self, stats: Stats, emitter: Emitter, on_missed: Callable[[Attempt], None]) -> None:
        self._stats, self._emitter, self._on_missed = stats, emitter, on_missed
        self._loop = asyncio.get_running_loop()
        self.crashed: list[tuple[Attempt, Error]] = []

    @property
    def wants_done(self) -> bool:
        return self._emitter.wants(JobDone)

    def done(self, attempt: Attempt) -> None:
        seconds = attempt.ended - attempt.started
        self._emitter.attempt_event(JobDone, attempt, seconds=seconds, waited=self._emitter.waited(attempt))

    def count(self, attempt: Attempt) -> None:
        """Any ending but success."""
        stats, tell = self._stats, self._emitter.attempt_event
        seconds = attempt.seconds(self._loop.time())
        match attempt.outcome:
            case Release(unknown):
                stats.released += 1
                reason = "unknown task" if unknown else _why_released(attempt)
                tell(JobReleased, attempt, seconds=seconds, reason=reason)
                if late := missed_by(attempt):
                    tell(StartMissed, attempt, late=late)
                    self._on_missed(attempt)
            case Await(needs):
                stats.released += 1
                whose = ", ".join(need.name for need in needs)
                tell(JobReleased, attempt, seconds=seconds, reason=f"waits for pool {whose}")
            case Split():
                stats.released += 1
                tell(JobReleased, attempt, seconds=seconds, reason="split")
            case Snooze(delay, why):
                stats.snoozed += 1
                tell(JobSnoozed, attempt, seconds=seconds, delay=delay, reason=why)
            case Retrying(delay, error):
                stats.retried += 1
                told = {"error": error.type, "message": error.message}
                tell(JobRetrying, attempt, seconds=seconds, delay=delay, **told)
            case Fail(error, reason):
                self._failed(attempt, error, reason)
            case Crashed(error):
                stats.crashed += 1
                self.crashed.append((attempt, error))

    @staticmethod
    def ran(attempt: Attempt) -> tuple[Attempt, ...]:
        """Itself, unless it was handed back: then it may not have run, or not to its end."""
        handed_back = isinstance(attempt.outcome, Release | Await | Split)
        return (attempt,) if attempt.begun and not handed_back else ()

    def refused(self, attempt: Attempt, answer: Answer) -> None:
        """Normal after a pause longer than the lease."""
        if answer is Answer.STALE:
            self._stats.stale += 1
        else:
            self._stats.gone += 1
        outcome = str(attempt.outcome.__struct_config__.tag) if attempt.outcome is not None else ""
        self._emitter.attempt_event(OutcomeRefused, attempt, outcome=outcome, answer=str(answer))

    def tell_problems(self, attempt: Attempt) -> None:
        """With what its handler told of its pools, and with the application's own classifiers."""
        for problem in attempt.spending.problems if attempt.spending is not None else ():
            self._emitter.attempt_event(FeedbackProblem, attempt, problem=problem)

    async def ask_about_crashes(self, store: Store) -> None:
        crashed, self.crashed = self.crashed, []
        jobs = await look_up(store, [attempt.job.id for attempt, _ in crashed])
        for (attempt, error), job in zip(crashed, jobs, strict=True):
            if job is not None and job.state is State.FAILED and job.claim == attempt.job.claim:
                self._failed(attempt, error, job.reason or "failed")
            else:
                self._emitter.attempt_event(
                    JobCrashed,
                    attempt,
                    seconds=attempt.seconds(self._loop.time()),
                    crashes=attempt.job.crashes + 1,
                    error=error.type,
                    message=error.message,
                )

    def _failed(self, attempt: Attempt, error: Error, reason: str) -> None:
        self._stats.failed += 1
        self._emitter.attempt_event(
            JobFailed,
            attempt,
            seconds=attempt.seconds(self._loop.time()),
            reason=reason,
            error=error.type,
            message=error.message,
            traceback=error.traceback,
        )


def missed_by(attempt: Attempt) -> float:
    """By how many seconds its handler came too late to start; 0 when it did not."""
    spending = (attempt.call or attempt).spending
    handed_back = isinstance(attempt.outcome, Release)
    return spending.late if spending is not None and handed_back else 0.0


def _why_released(attempt: Attempt) -> str:
    run = attempt.call or attempt
    spending = run.spending
    if run.expired:
        return "lease over"
    if missed_by(attempt):
        return "too late"
    if spending is not None and spending.refusals and run.stop is None:
        return "refused"
    return "stopping" if attempt.begun else "not started"
