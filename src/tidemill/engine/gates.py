"""Whether the pools and the key of a job let it start, asked head by head while a claim picks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidemill.core import calls, extras, ledger, transitions
from tidemill.core.batching import Batching
from tidemill.core.calls import Call, Unripe
from tidemill.core.job import Job
from tidemill.core.lanes import Ahead, Gate, Picked
from tidemill.core.ledger import Reserved, Stopped
from tidemill.engine.ledger import Books
from tidemill.engine.queue import Queue


class Gates:
    def __init__(self, books: Books, queue: Queue) -> None:
        self._books, self._queue = books, queue
        self._started: Counter[str] = Counter()
        self._stopped: dict[str, Stopped] = {}
        self._unripe: dict[str, Unripe] = {}
        self.taken: dict[str, tuple[Reserved, ...]] = {}
        self.calls: dict[str, str] = {}
        self._called: set[str] = set()

    def admits(self, job: Job, ahead: Ahead[Job], most: int) -> int | Gate:
        """Several lanes have one key when their pools differ, so its room is counted here."""
        most = int(min(most, self._queue.room_in(job.key) - self._started[job.key]))
        if most <= 0:
            return Gate.LANE_SHUT
        answer = self._begun(job, ahead, most)
        if isinstance(answer, Unripe):
            self._unripe[job.lane] = answer
            return Gate.LANE_SHUT
        if isinstance(answer, Stopped):
            gate = answer.gate(job.lane)
            at = self._queue.lanes.group(job.lane) if gate is Gate.GROUP_SHUT else job.lane
            self._stopped[at] = answer
            return gate
        self.taken[job.id] = answer.reserved
        self._started[job.key] += answer.jobs
        return answer.jobs

    def _begun(self, job: Job, ahead: Ahead[Job], most: int) -> Unripe | Stopped | Call:
        if job.batching is not None:
            return self._call(job.batching, ahead(job.batching.max_items), most)
        lane = (self._queue.name, job.lane)
        answer = extras.ask_for(self._books, job, self._books.now(), lane)
        return answer if isinstance(answer, Stopped) else Call(1, answer)

    def _call(self, rule: Batching, waiting: Sequence[Job], most: int) -> Unripe | Stopped | Call:
        """B1 to B4. Whoever is left behind a call waits by his own time."""
        lane, now = waiting[0].lane, self._books.now()
        answer = calls.begin(
            self._books,
            rule,
            waiting,
            most,
            lambda job: transitions.is_expired(job, now.wall),
            None if lane in self._called else self._queue.lanes.ripe_at(lane),
            now,
            (self._queue.name, lane),
        )
        if isinstance(answer, Call):
            self._called.add(lane)
            self.calls.update((job.id, waiting[0].id) for job in waiting[: answer.jobs])
        return answer

    def shut(self, picked: Picked[Job]) -> None:
        """P12, B2. A lane that only waits for a place of its key is not shut."""
        for name in picked.shut_lanes:
            if name in self._unripe:
                unripe = self._unripe[name]
                self._queue.lanes.shut(name, unripe.shut(self._books.now().boot), unripe.lacks)
            elif name in self._stopped:
                self._queue.lanes.shut(name, self._shut(name, 0))
        for group, priority in picked.shut_groups.items():
            self._queue.lanes.shut_groups[group] = self._shut(group, priority)

    def _shut(self, name: str, priority: int) -> ledger.Shut:
        stopped = self._stopped[name]
        ends = self._books.override_ends(stopped.need.pool)
        return ledger.shut_by(stopped, priority, ends, self._books.now())
