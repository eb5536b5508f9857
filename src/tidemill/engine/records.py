"""Everything the store knows, and the two writes (`put`, `drop`) that keep its indexes true.

Consequences of a write (a successor released, a topic rung) are in `moves`; here a job
is only filed, so that whatever is counted or listed always equals a recount.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import RLock

import msgspec

from tidemill.clock import Clock, Entropy
from tidemill.contract import jobs
from tidemill.contract.jobs import Arrival
from tidemill.contract.reader import AttemptRecord, LogLine, WorkerInfo
from tidemill.contract.wakeups import agenda_topic, queue_topic
from tidemill.core.checkpoints import Checkpoint, Step
from tidemill.core.courses import Course, Kind
from tidemill.core.job import Job
from tidemill.core.ledger import PLACE
from tidemill.core.queues import Verdict
from tidemill.core.states import LIVE, PENDING, State
from tidemill.engine.indexes import Index
from tidemill.engine.ledger import Books
from tidemill.engine.order import Order
from tidemill.engine.queue import Queue


class Term(msgspec.Struct, frozen=True):
    """A time that is over when both clocks say so: a stepped wall clock ends nothing early."""

    wall: float
    boot: float
    boot_id: str


class Remembered(msgspec.Struct, frozen=True):
    """What is left of a request whose job is gone, or that never became a job of its own."""

    verdict: Verdict
    id: str
    fence: int
    claim: int
    term: Term


class Leader(msgspec.Struct, frozen=True):
    worker: str
    lease: float


class KnownWorker(msgspec.Struct, frozen=True):
    """Known from its first claim or heartbeat on. `number` is its last claim's; they start at 1."""

    info: WorkerInfo
    lease: float
    number: int = 0


def stranger(worker: str, seen: float) -> WorkerInfo:
    """A worker of which only the id is known yet."""
    return WorkerInfo(id=worker, host="", pid=0, queues=(), concurrency=0, holds=0, seen=seen)


class Stir(msgspec.Struct, frozen=True):
    """A course is to be looked at: one of its jobs has ended or come back, '' when it asked for it itself."""

    course: tuple[Kind, str]
    job: str


class Records:
    """One truth, shared by every handle; a verb holds `lock` from its first read to its last write."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self.clock, self.entropy = clock, entropy
        self.lock = RLock()
        self.boot_id = clock.boot_id
        self.seq = self.fence = self.picks = self.arrival_seq = self.stir_seq = 0
        self.jobs: dict[str, Job] = {}  # in order of seq: jobs are added at the end and updated in place
        self.queues: dict[str, Queue] = {}
        self.running: Index[str] = Index()  # by worker
        self.successors: Index[str] = Index()  # by the id of the job they wait for
        self.keys: Index[tuple[str, str]] = Index()  # jobs that may hold a unique key, by queue and key
        self.expiring: dict[str, None] = {}  # pending jobs with an expiry
        self.memory: dict[str, Remembered] = {}
        self.arrivals: dict[int, Arrival] = {}
        self.logs: dict[str, dict[tuple[int, int], deque[LogLine]]] = {}
        self.attempts: dict[str, deque[AttemptRecord]] = {}
        self.checkpoints: dict[str, dict[Step, Checkpoint]] = {}
        self.courses: dict[tuple[Kind, str], Course] = {}
        self.dues: dict[Kind, Order] = {kind: Order() for kind in Kind}
        self.stirs: dict[int, Stir] = {}
        self.parts: Index[str] = Index()  # jobs, by the flow they are part of
        self.workers: dict[str, KnownWorker] = {}
        self.leaders: dict[str, Leader] = {}
        self.topics: dict[str, None] = {}  # to be rung when the verb is over
        self.books = Books(clock, self._reopen)

    def queue(self, name: str) -> Queue:
        """A queue exists from its first job, declaration, override or pause on."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name, self.clock)
        return queue

    def _reopen(self, place: PLACE) -> None:
        """P15: whoever waits for units of that account is woken, and asks again."""
        for queue in self.waiting_for(place):
            if queue.lanes.reopen(place):
                self.topics[queue_topic(queue.name)] = None

    def waiting_for(self, place: PLACE) -> Iterable[Queue]:  # noqa: ARG002 - a store that knows them asks
        """The queues that may have lanes waiting for units of that account."""
        return self.queues.values()

    def overdue(self, boot: float, dead: frozenset[str]) -> list[Job]:
        """Running jobs whose lease is over, or whose worker is known to be dead."""
        running = (self.jobs[id_] for id_ in self.running.every())
        return [job for job in running if job.lease <= boot or job.worker in dead]

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def next_fence(self) -> int:
        self.fence += 1
        return self.fence

    def put(self, job: Job) -> None:
        """File the new version before taking out the old one: a lane whose only ready job is
        changed has a ready job all the time, and keeps its turn."""
        before = self.jobs.get(job.id)
        queue = self.queue(job.queue)
        queue.file(job, self.picks, fresh=before is None)
        if before is not None:
            queue.unfile(before)
            self._unlink(before)
        self.jobs[job.id] = job
        self._link(job)

    def drop(self, job: Job) -> None:
        """The job is gone; its id, verdict and last claim are remembered."""
        self.queues[job.queue].unfile(job)
        self._unlink(job)
        del self.jobs[job.id]
        self._forget_details(job.id)
        self.remember(job.id, Verdict.ACCEPTED, job.id, job.fence, job.claim)
        if job.flow is not None:
            self.stir(Kind.FLOW, job.flow.id, job.id)

    def _forget_details(self, job: str) -> None:
        self.logs.pop(job, None)
        self.attempts.pop(job, None)
        self.checkpoints.pop(job, None)

    def remember(self, request: str, verdict: Verdict, job: str, fence: int = 0, claim: int = 0) -> None:
        self.memory.pop(request, None)  # the newest stands last: prune forgets from the front
        self.memory[request] = Remembered(verdict, job, fence, claim, self.term())

    def term(self) -> Term:
        """MEMORY_OF_IDS from now."""
        clock = self.clock
        return Term(clock.wall() + jobs.MEMORY_OF_IDS, clock.boot() + jobs.MEMORY_OF_IDS, clock.boot_id)

    def is_over(self, term: Term) -> bool:
        """After another boot only the wall clock can tell."""
        if self.clock.wall() < term.wall:
            return False
        return term.boot_id != self.clock.boot_id or self.clock.boot() >= term.boot

    def recall(self, request: str) -> Remembered | None:
        known = self.memory.get(request)
        return None if known is None or self.is_over(known.term) else known

    def stir(self, kind: Kind, course: str, job: str = "") -> None:
        """F10. Whoever looked before must look again, so each stir has a number of its own. Nobody looks
        after a course that is gone."""
        if (kind, course) not in self.courses:
            return
        self.stir_seq += 1
        self.stirs[self.stir_seq] = Stir((kind, course), job)
        self.topics[agenda_topic(kind)] = None

    def take_stirs(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.stirs.pop(number, None)

    def put_course(self, course: Course) -> None:
        self._undue(self.courses.get((course.kind, course.id)))
        self.courses[course.kind, course.id] = course
        if course.due is not None:
            self.dues[course.kind].add((course.due, course.id))

    def drop_course(self, course: Course) -> None:
        """With whatever has stirred it."""
        self._undue(self.courses.pop((course.kind, course.id)))
        stale = [number for number, stir in self.stirs.items() if stir.course == (course.kind, course.id)]
        self.take_stirs(stale)

    def _undue(self, course: Course | None) -> None:
        if course is not None and course.due is not None:
            self.dues[course.kind].remove((course.due, course.id))

    def end_step(self) -> None:
        for queue in self.queues.values():
            queue.lanes.forget_empty()

    def successor_of(self, job: str) -> Job | None:
        return next((self.jobs[id_] for id_ in self.successors.of(job)), None)

    def _link(self, job: Job) -> None:
        if job.flow is not None:
            self.parts.add(job.flow.id, job.id)
        if job.state is State.RUNNING:
            self.running.add(job.worker or "", job.id)
        if job.state is State.WAITING and job.after is not None:
            self.successors.add(job.after, job.id)
        if job.expires is not None and job.state in PENDING:
            self.expiring[job.id] = None
        if job.unique_key is not None and (job.unique_holds or job.state in LIVE):
            self.keys.add((job.queue, job.unique_key), job.id)

    def _unlink(self, job: Job) -> None:
        if job.flow is not None:
            self.parts.discard(job.flow.id, job.id)
        if job.state is State.RUNNING:
            self.running.discard(job.worker or "", job.id)
        if job.state is State.WAITING and job.after is not None:
            self.successors.discard(job.after, job.id)
        if job.expires is not None and job.state in PENDING:
            self.expiring.pop(job.id, None)
        if job.unique_key is not None and (job.unique_holds or job.state in LIVE):
            self.keys.discard((job.queue, job.unique_key), job.id)
