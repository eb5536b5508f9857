"""Takes back jobs whose owner fell silent, unless the clocks cannot be trusted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidemill.contract.jobs import Reading, Reclaimed
from tidemill.contract.store import Store
from tidemill.core.job import Error, Job
from tidemill.core.traces import trace_id
from tidemill.core.transitions import POISON
from tidemill.telemetry.base import Event
from tidemill.telemetry.events import ClocksParted, JobFailed, JobReclaimed, WorkerSilent
from tidemill.telemetry.signals import Signals
from tidemill.worker.emitter import Emitter
from tidemill.worker.questions import look_up

_TOLD: tuple[type[Event], ...] = (JobReclaimed, JobFailed, WorkerSilent)
MAY_PART_BY = 2.0
SEEN_WITHIN = 1.0


class Reclaimer:
    """A lease is over by the store's clock. If that clock and this process's own moved by different
    amounts since the last look (a suspended machine, a stepped or restored host), living owners may
    only seem silent: they get one whole lease to say so before anything is taken from them.

    Every worker watches, also one that never led: after a suspend the leader's lease is over too, and
    whoever leads next must have seen the clocks from before."""

    def __init__(self, store: Store, lease: float, emitter: Emitter) -> None:
        self._store, self._lease, self._emitter = store, lease, emitter
        self._loop = asyncio.get_running_loop()
        self._seen: tuple[float, float] | None = None
        self._not_before = 0.0

    def watch(self, reading: Reading, asked: float) -> None:
        """What the store's clock said between `asked` and now. A store that was away answers late: then
        nobody knows when it looked."""
        now = self._loop.time()
        if now - asked >= MAY_PART_BY:
            return
        ours = (asked + now) / 2
        self._emitter.clock_read(reading, ours)
        seen, self._seen = self._seen, (reading.boot, ours)
        if seen is not None:
            apart = (reading.boot - seen[0]) - (ours - seen[1])
            if abs(apart) > MAY_PART_BY:
                self._not_before = self._loop.time() + self._lease
                self._emitter.worker_event(ClocksParted, seconds=apart, pause=self._lease)

    async def reclaim(self) -> bool:
        if self._trusts:
            told = await tell(self._emitter.signals, self._store, await self._store.reclaim())
            for worker, jobs in _by_worker(told).items():
                self._emitter.signals.emit(WorkerSilent(worker=worker, jobs=len(jobs), job=jobs[0]))
        return False

    @property
    def _trusts(self) -> bool:
        """By a look of just now: clocks may part at any time."""
        now = self._loop.time()
        return now >= self._not_before and self._seen is not None and now - self._seen[1] < SEEN_WITHIN


async def tell(signals: Signals, store: Store, reclaimed: Reclaimed) -> Sequence[JobReclaimed | JobFailed]:
    """What was reclaimed is known by id; the rest is looked up for those who want to hear of it."""
    ids = (*reclaimed.ready, *reclaimed.poison)
    if not ids or not any(signals.wants(kind) for kind in _TOLD):
        return ()
    poison = set(reclaimed.poison)
    told = [
        _failed(name, job) if name in poison else _reclaimed(name, job)
        for name, job in zip(ids, await look_up(store, ids), strict=True)
    ]
    for event in told:
        signals.emit(event)
    return told


def _by_worker(told: Sequence[JobReclaimed | JobFailed]) -> dict[str, list[str]]:
    """The ids of the jobs that each held."""
    found: dict[str, list[str]] = {}
    for event in told:
        found.setdefault(event.worker, []).append(event.job)
    return found


def _reclaimed(name: str, job: Job | None) -> JobReclaimed:
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
        worker="" if job.claim else job.worker or "",  # claimed anew: that is another's name
        crashes=job.crashes,
        error=error.type,
        message=error.message,
    )


def _failed(name: str, job: Job | None) -> JobFailed:
    told = _reclaimed(name, job)
    ran = 0.0 if job is None else (job.finished or 0.0) - (job.started or job.finished or 0.0)
    return JobFailed(
        job=name,
        task=told.task,
        queue=told.queue,
        trace=told.trace,
        attempt=told.attempt,
        worker=told.worker,
        seconds=max(0.0, ran),
        reason=POISON,
        error=told.error,
        message=told.message,
    )
