"""The state of one queue in memory: its settings, and its jobs in every order that a store method needs."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tidemill.clock import Clock
from tidemill.core.jobs import Job
from tidemill.core.overrides import Override, apply_override
from tidemill.core.queues import Pause, QueueChanges, QueueSettings
from tidemill.core.states import FINAL, PENDING, State
from tidemill.engine.indexes import KeyCounts, SortedKeys, SortKey
from tidemill.engine.lanes import Lanes

FINAL_STATES: Final = (State.DONE, State.FAILED, State.CANCELLED)


class Queue:
    """One queue, with its settings, its jobs by state and its counters."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name, self._clock = name, clock
        self.declared = QueueSettings()
        self.override: Override[QueueChanges] | None = None
        self.pause: Pause | None = None
        self.counts: KeyCounts[State] = KeyCounts()
        self.lanes = Lanes()
        self.scheduled = SortedKeys()
        self.retrying = 0
        self.ended = {state: SortedKeys() for state in FINAL_STATES}
        self.ended_parts = SortedKeys()  # jobs of flows, which are kept as long as their flow
        self.running_in: KeyCounts[str] = KeyCounts()
        self.history: dict[float, Counter[str]] = {}

    @property
    def settings(self) -> QueueSettings:
        return apply_override(self.declared, self.override, self._clock.wall())

    def end_override(self, now: float) -> None:
        """Removes the override if it has expired at the wall time `now`, so that setting the wall clock back
        cannot restore it (Q2)."""
        if self.override is not None and not self.override.holds(now):
            self.override = None

    @property
    def pending(self) -> int:
        return sum(self.counts.of(state) for state in PENDING)

    @property
    def limited(self) -> bool:
        """True if the queue has a concurrency limit, for all jobs or per key."""
        return self.settings.concurrency is not None or self.settings.key_concurrency is not None

    def closed(self, now: float) -> bool:
        return self.pause is not None and self.pause.closed(now)

    def room(self) -> float:
        """Returns how many more jobs of the queue may run now, over all workers; infinite without a limit."""
        limit = self.settings.concurrency
        return float("inf") if limit is None else max(0, limit - self.counts.of(State.RUNNING))

    def room_in(self, key: str) -> float:
        """Returns how many more jobs of a key may run now, over all workers and lanes; infinite without a
        limit or without a key."""
        limit = self.settings.key_concurrency
        if limit is None or key == "":
            return float("inf")
        return max(0, limit - self.running_in.of(key))

    def add_job(self, job: Job, picks: int, *, fresh: bool) -> None:
        self.counts.change(job.state, 1)
        if job.state is State.READY:
            self.lanes.add(job, picks, fresh=fresh)
        elif job.state is State.SCHEDULED:
            self.scheduled.add(due_key(job))
            self.retrying += job.attempts > 0
        elif job.state is State.RUNNING:
            self.running_in.change(job.key, 1)
        elif job.state in FINAL:
            self._finished_order(job).add(_finished_key(job))

    def remove_job(self, job: Job) -> None:
        self.counts.change(job.state, -1)
        if job.state is State.READY:
            self.lanes.remove(job)
        elif job.state is State.SCHEDULED:
            self.scheduled.remove(due_key(job))
            self.retrying -= job.attempts > 0
        elif job.state is State.RUNNING:
            self.running_in.change(job.key, -1)
        elif job.state in FINAL:
            self._finished_order(job).remove(_finished_key(job))

    def _finished_order(self, job: Job) -> SortedKeys:
        return self.ended[job.state] if job.flow is None else self.ended_parts

    def count(self, what: str, now: float, jobs: int = 1) -> None:
        """Adds `jobs` to a counter of the current minute. `what` is done, failed, cancelled, retried,
        reclaimed or dropped_early, and `now` is a wall time."""
        minute = now // 60 * 60
        self.history.setdefault(minute, Counter())[what] += jobs


def due_key(job: Job) -> SortKey:
    return (job.due, job.seq, job.id)


def _finished_key(job: Job) -> SortKey:
    return (job.finished, job.seq, job.id)
