"""Reclaims jobs whose lease has expired. It pauses while the clocks cannot be trusted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidemill.contract.jobs import ClockReading, ReclaimResult
from tidemill.contract.store import Store
from tidemill.core.jobs import Error, Job, trace_id
from tidemill.core.transitions import POISON
from tidemill.telemetry.event_base import Event
from tidemill.telemetry.events import ClockSkewDetected, JobFailed, JobReclaimed, WorkerUnresponsive
from tidemill.telemetry.listeners import Signals
from tidemill.worker.event_emitter import EventEmitter, find_jobs

_EVENT_TYPES: tuple[type[Event], ...] = (JobReclaimed, JobFailed, WorkerUnresponsive)
MAX_CLOCK_SKEW_SECONDS = 2.0
MAX_READING_AGE_SECONDS = 1.0


class Reclaimer:
    """Reclaims jobs whose lease has expired on the store's clock.

    If the store's clock jumped, nothing is reclaimed for the duration of one lease. Workers that are still
    alive can then send a heartbeat. Every worker watches for jumps, not only the leader."""

    def __init__(self, store: Store, lease: float, emitter: EventEmitter) -> None:
        self._store, self._lease, self._emitter = store, lease, emitter
        self._loop = asyncio.get_running_loop()
        self._seen: tuple[float, float] | None = None
        self._not_before = 0.0

    def watch(self, reading: ClockReading, sent: float) -> None:
        """Records a reading of the store's clock and compares it with the previous one. Ignores an answer
        that took 2 seconds or more.

        `sent`: the event-loop time of the request."""
        now = self._loop.time()
        if now - sent >= MAX_CLOCK_SKEW_SECONDS:
            return  # the moment of the reading is not known well enough
        local = (sent + now) / 2
        self._emitter.clock_read(reading, local)
        seen, self._seen = self._seen, (reading.boot, local)
        if seen is not None:
            apart = (reading.boot - seen[0]) - (local - seen[1])
            if abs(apart) > MAX_CLOCK_SKEW_SECONDS:
                self._not_before = self._loop.time() + self._lease
                self._emitter.worker_event(ClockSkewDetected, seconds=apart, pause=self._lease)

    async def reclaim(self) -> bool:
        if self._trusts_clocks:
            emitted = await emit_reclaimed(self._emitter.signals, self._store, await self._store.reclaim())
            for worker, jobs in _group_by_worker(emitted).items():
                self._emitter.signals.emit(WorkerUnresponsive(worker=worker, jobs=len(jobs), job=jobs[0]))
        return False

    @property
    def _trusts_clocks(self) -> bool:
        """True if jobs may be reclaimed now. The last clock reading must be less than a second old, and the
        pause after a clock jump must be over."""
        now = self._loop.time()
        return (
            now >= self._not_before
            and self._seen is not None
            and now - self._seen[1] < MAX_READING_AGE_SECONDS
        )


async def emit_reclaimed(
    signals: Signals, store: Store, reclaimed: ReclaimResult
) -> Sequence[JobReclaimed | JobFailed]:
    """Emits and returns one event per reclaimed job; returns () if no listener wants such events."""
    ids = (*reclaimed.ready, *reclaimed.poison)
    if not ids or not any(signals.wants(kind) for kind in _EVENT_TYPES):
        return ()
    poison = set(reclaimed.poison)
    emitted = [
        _make_failed_event(name, job) if name in poison else _make_reclaimed_event(name, job)
        for name, job in zip(ids, await find_jobs(store, ids), strict=True)
    ]
    for event in emitted:
        signals.emit(event)
    return emitted


def _group_by_worker(emitted: Sequence[JobReclaimed | JobFailed]) -> dict[str, list[str]]:
    """Returns a mapping from the name of each worker to the ids of the reclaimed jobs that it held."""
    found: dict[str, list[str]] = {}
    for event in emitted:
        found.setdefault(event.worker, []).append(event.job)
    return found


def _make_reclaimed_event(name: str, job: Job | None) -> JobReclaimed:
    if job is None:
        return JobReclaimed(
            job=name, task="", queue="", trace=name, attempt=0, worker="", crashes=0, error="", message=""
        )
    error = job.error or Error("", "")
    return JobReclaimed(
        job=name,
        task=job.task,
        queue=job.queue,
        trace=trace_id(job.trace, name),
        attempt=job.attempts + 1,
        worker="" if job.claim else job.worker or "",  # claimed again: `worker` is the new owner
        crashes=job.crashes,
        error=error.type,
        message=error.message,
    )


def _make_failed_event(name: str, job: Job | None) -> JobFailed:
    emitted = _make_reclaimed_event(name, job)
    ran = 0.0 if job is None else (job.finished or 0.0) - (job.started or job.finished or 0.0)
    return JobFailed(
        job=name,
        task=emitted.task,
        queue=emitted.queue,
        trace=emitted.trace,
        attempt=emitted.attempt,
        worker=emitted.worker,
        seconds=max(0.0, ran),
        reason=POISON,
        error=emitted.error,
        message=emitted.message,
    )
