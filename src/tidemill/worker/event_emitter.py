"""Emits the worker's events and counts outcomes once the store has recorded them."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from tidemill.clock import Clock
from tidemill.contract.jobs import ClockReading
from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob
from tidemill.core.jobs import Error, Job, trace_id
from tidemill.core.outcomes import (
    Crash,
    FinalFailure,
    JobRelease,
    RetryLater,
    SmallerBatch,
    Snooze,
    UnitWait,
    WriteAnswer,
)
from tidemill.core.pool_statistics import PoolChange, PoolChangeKind
from tidemill.core.redaction import redact_text
from tidemill.core.states import State
from tidemill.errors import StoreError
from tidemill.tasks.redaction import EventRedactor, TaskSecrets
from tidemill.telemetry.event_base import AttemptEvent, WorkerEvent
from tidemill.telemetry.events import (
    FeedbackProblem,
    JobCrashed,
    JobDone,
    JobFailed,
    JobReleased,
    JobRetrying,
    JobSnoozed,
    JobStartMissed,
    OutcomeRefused,
    PoolClosed,
    PoolLimitLowered,
    PoolOpened,
    PoolProbed,
)
from tidemill.telemetry.listeners import Signals
from tidemill.worker.attempt import Attempt
from tidemill.worker.metrics import WorkerStats

_REDACTED_FIELDS = ("message", "traceback", "reason", "problem")


class EventEmitter:
    """Builds and emits the events of one worker. It adds the common fields and removes secrets from texts.

    `now`: the event-loop time at which the emitter is created."""

    def __init__(
        self,
        signals: Signals,
        worker: str,
        clock: Clock,
        now: float,
        secrets: TaskSecrets | None = None,
    ) -> None:
        self.signals, self.worker = signals, worker
        self.secrets = secrets or TaskSecrets({})
        self.wants = signals.wants
        self._wall_at_zero = clock.wall() - now

    def clock_read(self, reading: ClockReading, now: float) -> None:
        """Records a reading of the store's wall clock. `now` is the event-loop time at which the store read
        it."""
        self._wall_at_zero = reading.wall - now

    def wall(self, now: float) -> float:
        """Returns the store's wall time at loop time `now`."""
        return now + self._wall_at_zero

    def waited(self, attempt: Attempt) -> float:
        """Returns the seconds from the time when the job was due until the attempt started."""
        return max(0.0, attempt.started + self._wall_at_zero - attempt.job.due)

    def worker_event(self, kind: type[WorkerEvent], **fields: Any) -> None:
        if self.wants(kind):
            redacted_fields = self._redact(fields, lambda text: redact_text(text, self.secrets.usual))
            self.signals.emit(kind(worker=self.worker, **redacted_fields))

    def attempt_event(self, kind: type[AttemptEvent], attempt: Attempt, **fields: Any) -> None:
        self.job_event(kind, attempt.job, **fields)

    def job_event(self, kind: type[AttemptEvent], job: ClaimedJob, **fields: Any) -> None:
        if self.wants(kind):
            redacted_fields = self._redact(fields, EventRedactor(self.secrets, job.task, job.payload).text)
            self.signals.emit(
                kind(
                    job=job.id,
                    task=job.task,
                    queue=job.queue,
                    trace=trace_id(job.trace, job.id),
                    attempt=job.attempt,
                    worker=self.worker,
                    **redacted_fields,
                )
            )

    def _redact(self, fields: dict[str, Any], redact: Callable[[str], str]) -> dict[str, Any]:
        """Returns the fields with secrets removed from texts such as error messages."""
        texts = {name: redact(text) for name in _REDACTED_FIELDS if isinstance(text := fields.get(name), str)}
        return fields | texts


def error_fields(error: BaseException) -> dict[str, str]:
    """Returns the fields `error` (the class name) and `message`, which every event about an error has."""
    return {"error": type(error).__name__, "message": str(error)}


def error_fields_with_traceback(error: BaseException) -> dict[str, str]:
    return {**error_fields(error), "traceback": "".join(traceback.format_exception(error))}


STORE_ANSWER_SECONDS = 2.0


@asynccontextmanager
async def best_effort() -> AsyncIterator[None]:
    with suppress(StoreError, TimeoutError):
        async with asyncio.timeout(STORE_ANSWER_SECONDS):
            yield


async def find_jobs(store: Store, ids: Sequence[str]) -> Sequence[Job | None]:
    async with best_effort():
        return await store.get(ids)
    return [None] * len(ids)


MAX_TEXT_CHARACTERS = 200


def emit_pool_changes(emitter: EventEmitter, changes: Iterable[PoolChange]) -> None:
    """Emits an event for each pool change. The event is missing if the store's answer was lost."""
    for change in changes:
        _emit_pool_change(emitter, change)


def _emit_pool_change(emitter: EventEmitter, change: PoolChange) -> None:
    common = {"pool": change.pool, "key": change.key, "job": change.job}
    closure = change.closure
    if change.what is PoolChangeKind.SLOWED:
        emitter.worker_event(PoolLimitLowered, **common, amounts=change.amounts)
    elif closure is None:
        return
    elif change.what is PoolChangeKind.CLOSED:
        emitter.worker_event(
            PoolClosed,
            **common,
            reason=str(closure.reason),
            unit=closure.unit,
            until=closure.until,
            times=closure.times,
            text=closure.text[:MAX_TEXT_CHARACTERS],
        )
    elif change.what is PoolChangeKind.PROBED:
        emitter.worker_event(PoolProbed, **common, reason=str(closure.reason))
    else:
        emitter.worker_event(
            PoolOpened, **common, reason=str(closure.reason), since=closure.since, ramp=change.ramp
        )


class OutcomeEvents:
    """Counts outcomes and emits their events, after the store has recorded them.

    - `crashed`: attempts whose child process died. `emit_crashes` emits their events later.
    - `on_missed`: is called with each attempt that was released because its reserved units were too old.
    - `on_dependency`: is called with each attempt whose handler could not use a dependency, and its
      outcome."""

    def __init__(
        self,
        stats: WorkerStats,
        emitter: EventEmitter,
        *,
        on_missed: Callable[[Attempt], None],
        on_dependency: Callable[[Attempt, Snooze], None],
    ) -> None:
        self._stats, self._emitter, self._on_missed = stats, emitter, on_missed
        self._on_dependency = on_dependency
        self._loop = asyncio.get_running_loop()
        self.crashed: list[tuple[Attempt, Error]] = []

    @property
    def wants_done(self) -> bool:
        return self._emitter.wants(JobDone)

    def emit_done(self, attempt: Attempt) -> None:
        seconds = attempt.ended - attempt.started
        self._emitter.attempt_event(JobDone, attempt, seconds=seconds, waited=self._emitter.waited(attempt))

    def record(self, attempt: Attempt) -> None:
        """Counts an outcome other than success and emits its event. A crash is only added to `crashed`."""
        stats, emit = self._stats, self._emitter.attempt_event
        seconds = attempt.seconds(self._loop.time())
        match attempt.outcome:
            case JobRelease(unknown):
                stats.released += 1
                reason = "unknown task" if unknown else _release_reason(attempt)
                emit(JobReleased, attempt, seconds=seconds, reason=reason)
                if late := seconds_late(attempt):
                    emit(JobStartMissed, attempt, late=late)
                    self._on_missed(attempt)
            case UnitWait(needs):
                stats.released += 1
                pools = ", ".join(need.name for need in needs)
                emit(JobReleased, attempt, seconds=seconds, reason=f"waits for pool {pools}")
            case SmallerBatch():
                stats.released += 1
                emit(JobReleased, attempt, seconds=seconds, reason="split")
            case Snooze(delay, why, dependency):
                stats.snoozed += 1
                emit(JobSnoozed, attempt, seconds=seconds, delay=delay, reason=why, dependency=dependency)
                if dependency is not None:
                    self._on_dependency(attempt, attempt.outcome)
            case RetryLater(delay, error):
                stats.retried += 1
                fields = {"error": error.type, "message": error.message}
                emit(JobRetrying, attempt, seconds=seconds, delay=delay, **fields)
            case FinalFailure(error, reason):
                self._emit_failed(attempt, error, reason)
            case Crash(error):
                stats.crashed += 1
                self.crashed.append((attempt, error))

    @staticmethod
    def ran_to_end(attempt: Attempt) -> tuple[Attempt, ...]:
        """Returns `(attempt,)` if the handler began and the attempt was not released, otherwise `()`."""
        released = isinstance(attempt.outcome, JobRelease | UnitWait | SmallerBatch)
        return (attempt,) if attempt.begun and not released else ()

    def emit_refused(self, attempt: Attempt, answer: WriteAnswer) -> None:
        """Counts an outcome that the store refused with `answer`, and emits an event."""
        if answer is WriteAnswer.STALE:
            self._stats.stale += 1
        else:
            self._stats.gone += 1
        outcome = str(attempt.outcome.__struct_config__.tag) if attempt.outcome is not None else ""
        self._emitter.attempt_event(OutcomeRefused, attempt, outcome=outcome, answer=str(answer))

    def emit_problems(self, attempt: Attempt) -> None:
        """Emits an event for each problem that was found in the handler's usage reports or in the
        application's classifiers."""
        for problem in attempt.usage.problems if attempt.usage is not None else ():
            self._emitter.attempt_event(FeedbackProblem, attempt, problem=problem)

    async def emit_crashes(self, store: Store) -> None:
        crashed, self.crashed = self.crashed, []
        jobs = await find_jobs(store, [attempt.job.id for attempt, _ in crashed])
        for (attempt, error), job in zip(crashed, jobs, strict=True):
            if job is not None and job.state is State.FAILED and job.claim == attempt.job.claim:
                self._emit_failed(attempt, error, job.reason or "failed")
            else:
                self._emitter.attempt_event(
                    JobCrashed,
                    attempt,
                    seconds=attempt.seconds(self._loop.time()),
                    crashes=attempt.job.crashes + 1,
                    error=error.type,
                    message=error.message,
                )

    def _emit_failed(self, attempt: Attempt, error: Error, reason: str) -> None:
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


def seconds_late(attempt: Attempt) -> float:
    """Returns by how many seconds the handler missed its latest start time; 0 if it did not miss it."""
    usage = (attempt.batch or attempt).usage
    released = isinstance(attempt.outcome, JobRelease)
    return usage.late if usage is not None and released else 0.0


def _release_reason(attempt: Attempt) -> str:
    run = attempt.batch or attempt
    usage = run.usage
    if run.expired:
        return "lease over"
    if seconds_late(attempt):
        return "too late"
    if usage is not None and usage.refusals and run.stop is None:
        return "refused"
    return "stopping" if attempt.begun else "not started"
