"""The records of one step: as much of a store as it has looked up, and what the step makes of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from tidemill.clock import Entropy
from tidemill.contract.jobs import Arrival
from tidemill.contract.wakeups import agenda_topic
from tidemill.core.checkpoints import Checkpoint, Step
from tidemill.core.courses import Course, Kind
from tidemill.core.job import Job
from tidemill.core.ledger import PLACE
from tidemill.core.queues import Verdict
from tidemill.engine import wants
from tidemill.engine.looked import LookedBooks, LookedQueue
from tidemill.engine.queue import Queue
from tidemill.engine.records import KnownWorker, Records, Remembered, Stir
from tidemill.engine.tables import Looked, LookedIndex, Table
from tidemill.engine.wants import Numbers, QueueRow, Rows

T = TypeVar("T")


class StoppedClock:
    """The store's clocks, as they were when the step began to look."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self.boot_id = numbers.boot_id

    def wall(self) -> float:
        return self._numbers.wall

    def boot(self) -> float:
        return self._numbers.boot


class Taken(msgspec.Struct):
    """Numbers the store has given to this step, and what it drew by lot. They stay its own when it begins
    anew."""

    seqs: list[int] = []
    fence: int | None = None
    claims: list[int] = []
    chances: list[float] = []


class Drawn:
    """Lots of one step: whoever begins anew draws the same."""

    def __init__(self, entropy: Entropy, taken: Taken) -> None:
        self._entropy, self._taken = entropy, taken
        self._claims = self._chances = 0

    def new_id(self) -> str:
        return self._entropy.new_id()

    def claim_id(self) -> int:
        self._claims += 1
        if self._claims > len(self._taken.claims):
            self._taken.claims.append(self._entropy.claim_id())
        return self._taken.claims[self._claims - 1]

    def chance(self) -> float:
        self._chances += 1
        if self._chances > len(self._taken.chances):
            self._taken.chances.append(self._entropy.chance())
        return self._taken.chances[self._chances - 1]

    def secret(self) -> str:
        return self._entropy.secret()


class Workspace(Records):
    def __init__(self, rows: Rows, numbers: Numbers, taken: Taken, entropy: Entropy) -> None:
        super().__init__(StoppedClock(numbers), Drawn(entropy, taken))
        self.looked = looked = Looked(rows)
        self.picks = self._picks_before = numbers.picks
        self._taken, self.seqs = taken, list[int]()
        self._last_seq, self.fence = numbers.seq, 0
        self._next_fence = numbers.fence + 1 if taken.fence is None else taken.fence
        self.jobs: Table[str, Job] = Table(looked, wants.JobOf, _as_it_is)
        self.queues: Table[str, Queue] = Table(looked, wants.QueueOf, self._queue_of)
        self.running = LookedIndex(looked, wants.RunningOf)
        self.successors = LookedIndex(looked, wants.SuccessorsOf)
        self.keys = LookedIndex(looked, lambda at: wants.HoldersOf(*at))
        self.memory: Table[str, Remembered] = Table(looked, wants.Recalled, _as_it_is)
        self.arrivals: Table[int, Arrival] = Table(looked, wants.ArrivalOf, _as_it_is)
        self.checkpoints: Table[str, dict[Step, Checkpoint]] = Table(looked, wants.StepsOf, _steps)
        self.courses: Table[tuple[Kind, str], Course] = Table(
            looked, lambda at: wants.CourseOf(*at), _as_it_is
        )
        self.stirred: list[Stir] = []
        self.taken: list[int] = []
        self.workers: Table[str, KnownWorker] = Table(looked, wants.WorkerOf, _as_it_is)
        self.books: LookedBooks = LookedBooks(self.clock, self._reopen, looked, self._next_fence)

    def queue(self, name: str) -> Queue:
        if name not in self.queues:
            self.queues[name] = self._queue_of(name, QueueRow())
        return self.queues[name]

    def waiting_for(self, place: PLACE) -> Iterable[Queue]:
        """With those whom this step itself has made wait."""
        names = dict.fromkeys(self.looked(wants.WaitingFor(place)) or ())
        for name, queue in self.queues.items():
            if isinstance(queue, LookedQueue) and queue.lanes.has_shut(place):
                names[name] = None
        return [self.queues[name] for name in names]

    def overdue(self, boot: float, dead: frozenset[str]) -> list[Job]:  # noqa: ARG002 - the store has looked
        return [self.jobs[id_] for id_ in self.looked(wants.Overdue(tuple(sorted(dead)))) or ()]

    def next_seq(self) -> int:
        """Those that will be given, if nobody comes between."""
        at, taken = len(self.seqs), self._taken.seqs
        self.seqs.append(taken[at] if at < len(taken) else self._last_seq + 1 + at - len(taken))
        return self.seqs[-1]

    def next_fence(self) -> int:
        self.fence = self._next_fence
        return self.fence

    @property
    def picked(self) -> int:
        return self.picks - self._picks_before

    def stir(self, kind: Kind, course: str, job: str = "") -> None:
        """The store gives it its number, if it has such a course."""
        self.stirred.append(Stir((kind, course), job))
        self.topics[agenda_topic(kind)] = None

    def take_stirs(self, numbers: Iterable[int]) -> None:
        self.taken += numbers

    def put_course(self, course: Course) -> None:
        self.courses[course.kind, course.id] = course

    def drop_course(self, course: Course) -> None:
        """Whoever drops its row drops what has stirred it."""
        del self.courses[course.kind, course.id]

    def remember(self, request: str, verdict: Verdict, job: str, fence: int = 0, claim: int = 0) -> None:
        self.memory.write(request, Remembered(verdict, job, fence, claim, self.term()))

    def _forget_details(self, job: str) -> None:
        """Whoever drops the job's row drops them with it."""

    def _queue_of(self, name: str, row: QueueRow) -> Queue:
        return LookedQueue(name, row, self.clock, self.looked)


def _as_it_is(_: Any, row: T) -> T:
    return row


def _steps(_: str, row: tuple[Checkpoint, ...]) -> dict[Step, Checkpoint]:
    return {checkpoint.step: checkpoint for checkpoint in row}
