"""Whether the pools and the key of a job let it start, asked head by head while a claim picks."""

from __future__ import annotations

from collections import Counter

from tidemill.core import ledger
from tidemill.core.job import Job
from tidemill.core.lanes import Gate, Picked
from tidemill.core.ledger import Reserved, Stopped
from tidemill.stores.memory.ledger import Books
from tidemill.stores.memory.queue import Queue


class Gates:
    def __init__(self, books: Books, queue: Queue) -> None:
        self._books, self._queue = books, queue
        self._started: Counter[str] = Counter()
        self._stopped: dict[str, Stopped] = {}
        self.taken: dict[str, tuple[Reserved, ...]] = {}

    def admits(self, job: Job) -> Gate:
        """Several lanes have one key when their pools differ, so its room is counted here."""
        if self._started[job.key] >= self._queue.room_in(job.key):
            return Gate.LANE_SHUT
        if job.needs:
            answer = ledger.ask_all(self._books, job.id, job.priority, job.needs, self._books.now())
            if isinstance(answer, Stopped):
                at = self._queue.lanes.group(job.lane) if answer.gate is Gate.GROUP_SHUT else job.lane
                self._stopped[at] = answer
                return answer.gate
            self.taken[job.id] = answer
        self._started[job.key] += 1
        return Gate.OPEN

    def shut(self, picked: Picked[Job]) -> None:
        """P12. A lane that only waits for a place of its key is not shut."""
        for name in picked.shut_lanes:
            if name in self._stopped:
                self._queue.lanes.shut(name, self._shut(name, 0))
        for group, priority in picked.shut_groups.items():
            self._queue.lanes.shut_groups[group] = self._shut(group, priority)

    def _shut(self, name: str, priority: int) -> ledger.Shut:
        stopped = self._stopped[name]
        ends = self._books.override_ends(stopped.need.pool)
        return ledger.shut_by(stopped, priority, ends, self._books.now())
