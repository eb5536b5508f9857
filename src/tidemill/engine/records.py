"""The records of a store in memory. Also stores a job in a new state, with all consequences of the change."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import RLock

import msgspec

from tidemill.clock import Clock, Entropy
from tidemill.contract import jobs
from tidemill.contract.coordination import job_topic, queue_topic, worklist_topic
from tidemill.contract.jobs import Arrival
from tidemill.contract.reader import ATTEMPTS_KEPT, AttemptRecord, LogLine, WorkerInfo
from tidemill.core import ledger, transitions
from tidemill.core.checkpoints import Checkpoint, StepKey
from tidemill.core.documents import Document, DocumentKind
from tidemill.core.jobs import Job
from tidemill.core.ledger import AccountKey
from tidemill.core.queues import InsertVerdict
from tidemill.core.states import FINAL, LIVE, PENDING, State
from tidemill.engine.indexes import JobIndex, SortedKeys
from tidemill.engine.ledger import PoolLedger
from tidemill.engine.queue import Queue


class ExpiryTerm(msgspec.Struct, frozen=True):
    """A moment on both clocks. It has passed only if both clocks have reached it.

    - `wall`: a wall time.
    - `boot`: a boot-clock time of the boot `boot_id`."""

    wall: float
    boot: float
    boot_id: str


class KnownId(msgspec.Struct, frozen=True):
    """The remembered answer to an enqueue request whose job was deleted or never created.

    - `verdict`: the answer, such as "accepted".
    - `id`: the job that was created, or that held the request's unique key.
    - `fence`, `claim`: the last claim of that job.
    - `term`: when the store may forget this answer."""

    verdict: InsertVerdict
    id: str
    fence: int
    claim: int
    term: ExpiryTerm


class LeaderLease(msgspec.Struct, frozen=True):
    """The lease of the worker that leads a duty (a kind of maintenance). The lease expires at the boot-clock
    time `lease`."""

    worker: str
    lease: float


class KnownWorker(msgspec.Struct, frozen=True):
    """A worker that the store knows, from its first claim or heartbeat on.

    - `lease`: the boot-clock time at which its lease expires.
    - `number`: the number of its last claim; 0 means none."""

    info: WorkerInfo
    lease: float
    number: int = 0


def unknown_worker(worker: str, seen: float) -> WorkerInfo:
    """Returns a WorkerInfo for a worker of which only the id is known. `seen` is a wall time."""
    return WorkerInfo(id=worker, host="", pid=0, queues=(), concurrency=0, holds=0, seen=seen)


class WorkMark(msgspec.Struct, frozen=True):
    """An entry of the worklist: `document` (kind and id) has to be advanced. `job` is the job that changed;
    '' if none did."""

    document: tuple[DocumentKind, str]
    job: str


class Records:
    """All data of a store in memory. Several store objects can share it. A store method holds `lock` from its
    first read to its last write."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self.clock, self.entropy = clock, entropy
        self.lock = RLock()
        self.boot_id = clock.boot_id
        self.seq = self.fence = self.picks = self.arrival_seq = self.work_mark_seq = 0
        self.jobs: dict[str, Job] = {}  # in order of seq: jobs are added at the end and updated in place
        self.queues: dict[str, Queue] = {}
        self.running: JobIndex[str] = JobIndex()  # by worker
        self.successors: JobIndex[str] = JobIndex()  # by the id of the job they wait for
        self.unique_holders: JobIndex[tuple[str, str]] = (
            JobIndex()
        )  # jobs that may hold a unique key, by queue and key
        self.expiring: dict[str, None] = {}  # pending jobs with an expiry
        self.memory: dict[str, KnownId] = {}
        self.arrivals: dict[int, Arrival] = {}
        self.logs: dict[str, dict[tuple[int, int], deque[LogLine]]] = {}
        self.attempts: dict[str, deque[AttemptRecord]] = {}
        self.checkpoints: dict[str, dict[StepKey, Checkpoint]] = {}
        self.documents: dict[tuple[DocumentKind, str], Document] = {}
        self.dues: dict[DocumentKind, SortedKeys] = {kind: SortedKeys() for kind in DocumentKind}
        self.work_marks: dict[int, WorkMark] = {}
        self.flow_jobs: JobIndex[str] = JobIndex()  # jobs, by their flow
        self.workers: dict[str, KnownWorker] = {}
        self.leaders: dict[str, LeaderLease] = {}
        self.topics: dict[str, None] = {}  # to be notified after the verb
        self.pool_ledger = PoolLedger(clock, self._reopen)

    def queue(self, name: str) -> Queue:
        """Returns the queue with that name. Creates it, with default settings, if it does not exist."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name, self.clock)
        return queue

    def _reopen(self, account_key: AccountKey) -> None:
        """Unblocks the lanes that wait for units of that account. Their queues get a wake-up (P15)."""
        for queue in self.waiting_for(account_key):
            if queue.lanes.reopen(account_key):
                self.topics[queue_topic(queue.name)] = None

    def waiting_for(self, account_key: AccountKey) -> Iterable[Queue]:  # noqa: ARG002 - a database store looks them up
        """Returns the queues that may have lanes waiting for units of that account."""
        return self.queues.values()

    def overdue(self, boot: float, dead: frozenset[str]) -> list[Job]:
        """Returns the running jobs whose lease has expired at the boot-clock time `boot`, or whose worker is
        in `dead`."""
        running = (self.jobs[id_] for id_ in self.running.every())
        return [job for job in running if job.lease <= boot or job.worker in dead]

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def next_fence(self) -> int:
        self.fence += 1
        return self.fence

    def put(self, job: Job) -> None:
        """Stores a new job, or the new version of a job."""
        before = self.jobs.get(job.id)
        queue = self.queue(job.queue)
        # Added before the old version is removed: a lane with one ready job keeps its turn.
        queue.add_job(job, self.picks, fresh=before is None)
        if before is not None:
            queue.remove_job(before)
            self._unlink(before)
        self.jobs[job.id] = job
        self._link(job)

    def drop(self, job: Job) -> None:
        """Deletes a job with its logs, attempts and checkpoints. The store still remembers its id and its
        last claim."""
        self.queues[job.queue].remove_job(job)
        self._unlink(job)
        del self.jobs[job.id]
        self._forget_details(job.id)
        self.remember(job.id, InsertVerdict.ACCEPTED, job.id, job.fence, job.claim)
        if job.flow is not None:
            self.mark_work(DocumentKind.FLOW, job.flow.id, job.id)

    def _forget_details(self, job: str) -> None:
        self.logs.pop(job, None)
        self.attempts.pop(job, None)
        self.checkpoints.pop(job, None)

    def remember(
        self, request: str, verdict: InsertVerdict, job: str, fence: int = 0, claim: int = 0
    ) -> None:
        self.memory.pop(request, None)  # the newest is last: prune deletes from the front
        self.memory[request] = KnownId(verdict, job, fence, claim, self.term())

    def term(self) -> ExpiryTerm:
        """Returns the moment KNOWN_ID_SECONDS from now, on both clocks."""
        clock = self.clock
        return ExpiryTerm(
            clock.wall() + jobs.KNOWN_ID_SECONDS, clock.boot() + jobs.KNOWN_ID_SECONDS, clock.boot_id
        )

    def is_over(self, term: ExpiryTerm) -> bool:
        """True if the moment `term` has passed on both clocks. After a restart of the machine only the wall
        clock counts."""
        if self.clock.wall() < term.wall:
            return False
        return term.boot_id != self.clock.boot_id or self.clock.boot() >= term.boot

    def find_known_id(self, request: str) -> KnownId | None:
        known = self.memory.get(request)
        return None if known is None or self.is_over(known.term) else known

    def mark_work(self, kind: DocumentKind, document: str, job: str = "") -> None:
        """Puts a document on the worklist, if the document exists (F10). `job` is the job that changed; '' if
        none did."""
        if (kind, document) not in self.documents:
            return
        # An advance removes only the numbers that it has read, so a later entry stays.
        self.work_mark_seq += 1
        self.work_marks[self.work_mark_seq] = WorkMark((kind, document), job)
        self.topics[worklist_topic(kind)] = None

    def take_work_marks(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.work_marks.pop(number, None)

    def put_document(self, document: Document) -> None:
        self._remove_due(self.documents.get((document.kind, document.id)))
        self.documents[document.kind, document.id] = document
        if document.due is not None:
            self.dues[document.kind].add((document.due, document.id))

    def drop_document(self, document: Document) -> None:
        """Deletes a document and its entries on the worklist."""
        self._remove_due(self.documents.pop((document.kind, document.id)))
        stale = [
            number
            for number, mark in self.work_marks.items()
            if mark.document == (document.kind, document.id)
        ]
        self.take_work_marks(stale)

    def _remove_due(self, document: Document | None) -> None:
        if document is not None and document.due is not None:
            self.dues[document.kind].remove((document.due, document.id))

    def forget_empty_lanes(self) -> None:
        for queue in self.queues.values():
            queue.lanes.forget_empty()

    def successor_of(self, job: str) -> Job | None:
        return next((self.jobs[id_] for id_ in self.successors.of(job)), None)

    def _link(self, job: Job) -> None:
        if job.flow is not None:
            self.flow_jobs.add(job.flow.id, job.id)
        if job.state is State.RUNNING:
            self.running.add(job.worker or "", job.id)
        if job.state is State.WAITING and job.after is not None:
            self.successors.add(job.after, job.id)
        if job.expires is not None and job.state in PENDING:
            self.expiring[job.id] = None
        if job.unique_key is not None and (job.unique_holds or job.state in LIVE):
            self.unique_holders.add((job.queue, job.unique_key), job.id)

    def _unlink(self, job: Job) -> None:
        if job.flow is not None:
            self.flow_jobs.discard(job.flow.id, job.id)
        if job.state is State.RUNNING:
            self.running.discard(job.worker or "", job.id)
        if job.state is State.WAITING and job.after is not None:
            self.successors.discard(job.after, job.id)
        if job.expires is not None and job.state in PENDING:
            self.expiring.pop(job.id, None)
        if job.unique_key is not None and (job.unique_holds or job.state in LIVE):
            self.unique_holders.discard((job.queue, job.unique_key), job.id)


_STARTABLE = (State.READY, State.SCHEDULED)


def move_job(records: Records, after: Job, now: float) -> None:
    """Stores a new job, or a job in its new state `after`, with all consequences: wake-ups, the start of a
    successor, history and worklist. `now` is the wall time."""
    before = records.jobs.get(after.id)
    records.put(after)
    if after.state in _STARTABLE or (before is not None and _frees_limit(records, before, after)):
        records.topics[queue_topic(after.queue)] = None
    had_ended = before is not None and before.state in FINAL
    if after.flow is not None and (after.state in FINAL) is not had_ended:
        records.mark_work(DocumentKind.FLOW, after.flow.id, after.id)
    if after.state in FINAL and not had_ended:
        if transitions.counts_in_history(None if before is None else before.state, after.state):
            records.queue(after.queue).count(after.state.value, now)
        if before is not None:
            release_job_holds(records, before)
        announce_end(records, after, now)


def announce_end(records: Records, job: Job, now: float) -> None:
    """Wakes the listeners that wait for the end of the job, and lets its successor start."""
    records.topics[job_topic(job.id)] = None
    successor = records.successor_of(job.id)
    if successor is not None:
        move_job(records, transitions.release_successor(successor, now), now)


def release_job_holds(records: Records, job: Job) -> None:
    """Releases the capacity that pools hold for a job that ended without running (P15)."""
    if job.state is not State.RUNNING and (job.needs or job.deferred_needs):
        ledger.release_holds(records.pool_ledger, job.id, (*job.needs, *job.deferred_needs))


def record_attempt(records: Records, before: Job, after: Job, outcome: str, now: float) -> None:
    """Stores how an attempt ended without success. `outcome` is a name such as "retry". Only the newest
    ATTEMPTS_KEPT attempts are kept."""
    attempts = records.attempts.setdefault(before.id, deque(maxlen=ATTEMPTS_KEPT))
    attempts.append(
        AttemptRecord(
            generation=before.generation,
            attempt=before.attempts + 1,
            started=before.started,
            ended=now,
            worker=before.worker,
            outcome=outcome,
            error=after.error,
        )
    )


def _frees_limit(records: Records, before: Job, after: Job) -> bool:
    ended = before.state is State.RUNNING and after.state is not State.RUNNING
    return ended and records.queue(after.queue).limited
