"""claim: up to `limit` jobs of some queues, or exactly the ones named."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable

import apsw
import msgspec

from tidemill.contract.jobs import PROMOTE_AT_ONCE
from tidemill.contract.wakeups import queue_topic
from tidemill.core import lanes, transitions
from tidemill.core.claims import Claimed, ClaimRequest, Claims
from tidemill.core.job import Job
from tidemill.core.queues import QueueSettings
from tidemill.core.states import FINAL, State
from tidemill.stores.sqlite.expire import expire
from tidemill.stores.sqlite.queues import end_override
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("claim")


class Ready(msgspec.Struct, array_like=True, frozen=True):
    """A ready job as `claim.sql: ready` packs it."""

    seq: int
    id: str
    task: str
    payload: str
    priority: int
    lane: str
    attempts: int
    crashes: int
    generation: int
    timeout: float | None
    trace: str | None
    created: float
    due: float
    part: int
    expires: float | None


_ALL = -1
_UNLIMITED = sys.maxsize
_READY = msgspec.json.Decoder(list[Ready])


def claim(transaction: Transaction, request: ClaimRequest, claim_id: Callable[[], int]) -> Claims:
    last = transaction.execute(SQL.last_claim, (request.worker,)).get
    if last is not None and request.number <= last:
        held = transaction.jobs(SQL.of_claim, (request.worker, request.number))
        return Claims(jobs=[transitions.in_hand(job) for job in held])
    claiming = Claiming(transaction, request, claim_id)
    if request.ids is not None:
        return _by_ids(claiming, request.ids)
    return _by_queues(claiming)


class Claiming:
    """One claim under way: its identity, and the jobs it has so far."""

    def __init__(self, transaction: Transaction, request: ClaimRequest, claim_id: Callable[[], int]) -> None:
        self.transaction, self.request = transaction, request
        self.jobs: list[Claimed] = []
        self._claim_id = claim_id
        self._fence = self._claim = 0

    @property
    def left(self) -> int:
        return self.request.limit - len(self.jobs)

    def room(self, queue: str, settings: QueueSettings) -> int:
        """How many jobs of the queue may start now, by its fleet-wide limit."""
        if settings.concurrency is None:
            return _UNLIMITED
        running: int = self.transaction.execute(SQL.running, (queue,)).get
        return settings.concurrency - running

    def room_in_lane(self, queue: str, lane: str, settings: QueueSettings) -> int:
        if not lane or settings.key_concurrency is None:
            return _UNLIMITED
        running: int = self.transaction.execute(SQL.running_in_lane, (queue, lane)).get
        return settings.key_concurrency - running

    def mark(self, queue: str, jobs: list[Ready]) -> None:
        """Jobs become running under this claim's one fence."""
        if not jobs:
            return
        transaction, request = self.transaction, self.request
        if not self._fence:
            self._fence = transaction.advance("fence", 1)
            self._claim = self._claim_id()
        lease = transaction.boot + request.lease
        identity = (self._fence, self._claim, request.worker, request.number, lease, transaction.now)
        transaction.execute(SQL.mark, (*identity, apsw.carray(array("q", [job.seq for job in jobs]))))
        transaction.counted(queue, State.READY, State.RUNNING, len(jobs))
        fence, claim = self._fence, self._claim
        self.jobs += [
            Claimed(
                job.id, queue, job.task, job.payload.encode(), fence, claim, job.attempts + 1, job.priority,
                job.lane, job.crashes, job.generation, job.timeout, job.trace, job.created, job.due, job.part,
            )
            for job in jobs
        ]  # fmt: skip

    def note(self) -> None:
        """Remember the claim by its number, so that repeating it finds the same jobs."""
        transaction, request = self.transaction, self.request
        transaction.execute(
            SQL.note_claim,
            (request.worker, request.number, transaction.boot + request.lease, transaction.now),
        )


def _by_ids(claiming: Claiming, ids: tuple[str, ...]) -> Claims:
    """What a transport delivered: each is claimed, blocked for now, or gone for good."""
    transaction = claiming.transaction
    blocked: list[str] = []
    gone: list[str] = []
    for name in dict.fromkeys(ids):
        job = transaction.by_id([name]).get(name)
        if job is not None and job.state is State.SCHEDULED and job.due <= transaction.now:
            transaction.save(job, job := transitions.promoted(job))
        if job is None or job.state in FINAL:
            gone.append(name)
        elif job.state is State.READY and transitions.is_expired(job, transaction.now):
            expire(transaction, [name])
            gone.append(name)
        elif job.state is State.READY and claiming.left > 0 and _open(claiming, job):
            claiming.mark(job.queue, [_as_ready(job)])
            transaction.touch(job.queue, job.lane)
        else:
            blocked.append(name)
    transaction.refresh_lanes()
    claiming.note()
    return Claims(jobs=claiming.jobs, blocked=tuple(blocked), gone=tuple(gone))


def _open(claiming: Claiming, job: Job) -> bool:
    row = claiming.transaction.queue(job.queue)
    if row.pause is not None and row.pause.closed(claiming.transaction.now):
        return False
    settings = claiming.transaction.settings(job.queue)
    room = claiming.room(job.queue, settings)
    return min(room, claiming.room_in_lane(job.queue, job.lane, settings)) > 0


def _as_ready(job: Job) -> Ready:
    return Ready(
        job.seq, job.id, job.task, job.payload.decode(), job.priority, job.lane, job.attempts, job.crashes,
        job.generation, job.timeout, job.trace, job.created, job.due, job.part, job.expires,
    )  # fmt: skip


def _by_queues(claiming: Claiming) -> Claims:
    transaction, request = claiming.transaction, claiming.request
    next_due: float | None = None
    open_queues: list[str] = []
    for share in request.shares:
        end_override(transaction, share.queue)
        due = _promote(transaction, share.queue)
        row = transaction.queue(share.queue)
        times: list[float | None] = [next_due, due, None if row.override is None else row.override.until]
        if row.pause is not None and row.pause.closed(transaction.now):
            times = [next_due, row.pause.until]
        elif not _take(claiming, share.queue, min(share.jobs, claiming.left)):
            open_queues.append(share.queue)
        next_due = min((time for time in times if time is not None), default=None)
    unexhausted = [queue for queue in open_queues if not _take(claiming, queue, claiming.left)]
    more = any(_startable(claiming, queue) for queue in unexhausted)
    claiming.note()
    wait = None if next_due is None else max(0.0, next_due - transaction.now)
    return Claims(jobs=claiming.jobs, more=more, next_due=wait)


def _promote(transaction: Transaction, queue: str) -> float | None:
    """Due jobs become ready; answers when the next one will be due."""
    due = transaction.execute(SQL.next_due, (queue,)).get
    if due is None or due > transaction.now:
        return due if due is None else float(due)
    rows = transaction.execute(SQL.due, (queue, transaction.now, PROMOTE_AT_ONCE)).fetchall()
    transaction.execute(SQL.promote, (apsw.carray(array("q", [seq for seq, _ in rows])),))
    transaction.counted(queue, State.SCHEDULED, State.READY, len(rows))
    for lane in {lane for _, lane in rows}:
        transaction.touch(queue, lane)
    transaction.refresh_lanes()
    transaction.topics.add(queue_topic(queue))
    following = transaction.execute(SQL.next_due, (queue,)).get
    return None if following is None else float(following)


def _take(claiming: Claiming, queue: str, wanted: int) -> bool:
    """Claim up to `wanted` jobs of an open queue; True when it has nothing more to give."""
    transaction = claiming.transaction
    settings = transaction.settings(queue)
    limit = min(wanted, claiming.room(queue, settings))
    if limit <= 0:
        return False
    picked = _pick(claiming, queue, settings, limit)
    for lane, served in picked.served.items():
        transaction.touch(queue, lane, served)
    if picked.jobs:
        transaction.advance("picks", len(picked.jobs))
    claiming.mark(queue, picked.jobs)
    expire(transaction, [job.id for job in picked.passed])
    transaction.refresh_lanes()
    return len(picked.jobs) < limit and not picked.stopped


def _pick(claiming: Claiming, queue: str, settings: QueueSettings, limit: int) -> lanes.Picked[Ready]:
    """Each job taken makes at most one lane give way, so the first `limit` lanes decide, unless an
    expired head was met: then a lane behind them may come forward, and all are asked."""
    transaction = claiming.transaction
    picks = transaction.number("picks")

    def pick(first: list[lanes.OpenLane]) -> lanes.Picked[Ready]:
        return lanes.pick(
            first,
            limit,
            picks,
            lambda lane, offset, count: _ready(transaction, queue, lane, offset, count),
            lambda job: job.expires is not None and job.expires <= transaction.now,
        )

    first = _open_lanes(claiming, queue, settings, limit)
    picked = pick(first)
    if picked.passed and len(first) == limit:
        return pick(_open_lanes(claiming, queue, settings, _ALL))
    return picked


def _startable(claiming: Claiming, queue: str) -> bool:
    settings = claiming.transaction.settings(queue)
    return claiming.room(queue, settings) > 0 and bool(_open_lanes(claiming, queue, settings, 1))


def _open_lanes(claiming: Claiming, queue: str, settings: QueueSettings, limit: int) -> list[lanes.OpenLane]:
    """The lanes that could give the next `limit` jobs; those found full are passed over from now on."""
    transaction = claiming.transaction
    found: list[lanes.OpenLane] = []
    while True:
        rows = transaction.execute(SQL.open_lanes, (queue, limit)).fetchall()
        full = 0
        for name, served, priority, seq in rows:
            room = claiming.room_in_lane(queue, name, settings)
            if room > 0:
                found.append(lanes.OpenLane(name, served, priority, seq, room))
            else:
                transaction.execute(SQL.block, (queue, name))
                full += 1
        if not full:
            return found
        found.clear()


def _ready(transaction: Transaction, queue: str, lane: str, offset: int, count: int) -> list[Ready]:
    return _READY.decode(transaction.execute(SQL.ready, (queue, lane, count, offset)).get)
