"""What the store keeps about one queue: its settings, its jobs in every order a verb needs."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tidemill.clock import Clock
from tidemill.core.job import Job
from tidemill.core.queues import Override, Pause, QueueSettings, in_force
from tidemill.core.states import FINAL, PENDING, State
from tidemill.engine.indexes import Tally
from tidemill.engine.lanes import Lanes
from tidemill.engine.order import Key, Order

ENDS: Final = (State.DONE, State.FAILED, State.CANCELLED)


class Queue:
    def __init__(self, name: str, clock: Clock) -> None:
        self.name, self._clock = name, clock
        self.declared = QueueSettings()
        self.override: Override | None = None
        self.pause: Pause | None = None
        self.counts: Tally[State] = Tally()
        self.lanes = Lanes()
        self.scheduled = Order()
        self.retrying = 0
        self.ended = {state: Order() for state in ENDS}
        self.ended_parts = Order()  # jobs of flows, which are kept with them
        self.running_in: Tally[str] = Tally()
        self.history: dict[float, Counter[str]] = {}

    @property
    def settings(self) -> QueueSettings:
        return in_force(self.declared, self.override, self._clock.wall())

    def end_override(self, now: float) -> None:
        """Q2. Its time is over: it does not come back when the wall clock is set back."""
        if self.override is not None and not self.override.holds(now):
            self.override = None

    @property
    def pending(self) -> int:
        return sum(self.counts.of(state) for state in PENDING)

    @property
    def limited(self) -> bool:
        """Whether the end of a run may let another job start."""
        return self.settings.concurrency is not None or self.settings.key_concurrency is not None

    def closed(self, now: float) -> bool:
        return self.pause is not None and self.pause.closed(now)

    def room(self) -> float:
        """How many more jobs of the queue may run, the whole fleet together."""
        limit = self.settings.concurrency
        return float("inf") if limit is None else max(0, limit - self.counts.of(State.RUNNING))

    def room_in(self, key: str) -> float:
        """Of a key, whatever its jobs' pools. Jobs without a key are in nobody's way: the limit does not
        hold for ''."""
        limit = self.settings.key_concurrency
        if limit is None or key == "":
            return float("inf")
        return max(0, limit - self.running_in.of(key))

    def file(self, job: Job, picks: int, *, fresh: bool) -> None:
        self.counts.change(job.state, 1)
        if job.state is State.READY:
            self.lanes.add(job, picks, fresh=fresh)
        elif job.state is State.SCHEDULED:
            self.scheduled.add(due_key(job))
            self.retrying += job.attempts > 0
        elif job.state is State.RUNNING:
            self.running_in.change(job.key, 1)
        elif job.state in FINAL:
            self._shelf(job).add(_ended_key(job))

    def unfile(self, job: Job) -> None:
        self.counts.change(job.state, -1)
        if job.state is State.READY:
            self.lanes.remove(job)
        elif job.state is State.SCHEDULED:
            self.scheduled.remove(due_key(job))
            self.retrying -= job.attempts > 0
        elif job.state is State.RUNNING:
            self.running_in.change(job.key, -1)
        elif job.state in FINAL:
            self._shelf(job).remove(_ended_key(job))

    def _shelf(self, job: Job) -> Order:
        return self.ended[job.state] if job.flow is None else self.ended_parts

    def count(self, what: str, now: float, jobs: int = 1) -> None:
        """More done, failed, cancelled, retried, reclaimed or dropped early in this minute."""
        minute = now // 60 * 60
        self.history.setdefault(minute, Counter())[what] += jobs


def due_key(job: Job) -> Key:
    return (job.due, job.seq, job.id)


def _ended_key(job: Job) -> Key:
    return (job.finished, job.seq, job.id)
