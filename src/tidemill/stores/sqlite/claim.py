"""Implements `claim`: takes ready jobs from some queues, or takes the jobs with given ids."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable

import apsw
import msgspec

from tidemill.contract.coordination import queue_topic
from tidemill.contract.jobs import MAX_PROMOTED_PER_CLAIM
from tidemill.core import late_calls, transitions
from tidemill.core.batching import group_by_call
from tidemill.core.claims import ClaimedJob, ClaimRequest, ClaimResult
from tidemill.core.jobs import Job
from tidemill.core.lane_selection import select_jobs
from tidemill.core.ledger import ClaimDenial, HeldReservation
from tidemill.core.queues import QueueSettings
from tidemill.core.states import FINAL, State
from tidemill.stores.sqlite.lanes import (
    UNLIMITED,
    KeyCapacity,
    LaneAdmission,
    LaneCursor,
    QueueHead,
    ReadyRow,
    has_waiting_batch,
    next_block_end,
)
from tidemill.stores.sqlite.ledger import LANES as SQL_OF_LANES
from tidemill.stores.sqlite.queues import end_override
from tidemill.stores.sqlite.statements import load_statements
from tidemill.stores.sqlite.transaction import SqliteTransaction, expire_jobs

SQL = load_statements("claim")


_READY = msgspec.json.Decoder(list[ReadyRow])


def claim(transaction: SqliteTransaction, request: ClaimRequest, claim_id: Callable[[], int]) -> ClaimResult:
    last = transaction.execute(SQL.last_claim, (request.worker,)).get
    if last is not None and request.number <= last:
        held = transaction.jobs(SQL.of_claim, (request.worker, request.number))
        return ClaimResult(jobs=[transitions.claimed_job(job) for job in group_by_call(held)])
    claiming = SqliteClaim(transaction, request, claim_id)
    if request.ids is not None:
        return _by_ids(claiming, request.ids)
    return _by_queues(claiming)


class SqliteClaim:
    """A claim in progress: its request, and the jobs claimed so far. `claim_id` returns a random claim id."""

    def __init__(
        self, transaction: SqliteTransaction, request: ClaimRequest, claim_id: Callable[[], int]
    ) -> None:
        self.transaction, self.request = transaction, request
        self.jobs: list[ClaimedJob] = []
        self.calls = 0
        self._heads: dict[str, QueueHead] = {}
        self._claim_id = claim_id
        self._fence = self._claim = 0

    @property
    def remaining(self) -> int:
        """How many more calls this claim may take. A batch counts as one call."""
        return self.request.limit - self.calls

    def head(self, queue: str, *, reload: bool = False) -> QueueHead:
        if reload or queue not in self._heads:
            self._heads[queue] = QueueHead(*self.transaction.execute(SQL.queue_head, (queue,)).fetchone())
        return self._heads[queue]

    def free_slots(self, queue: str, settings: QueueSettings) -> int:
        """Returns how many more jobs of the queue may run now under its concurrency limit."""
        if settings.concurrency is None:
            return UNLIMITED
        running: int = self.transaction.execute(SQL.running, (queue,)).get
        return settings.concurrency - running

    def key_capacity(self, queue: str, settings: QueueSettings) -> KeyCapacity:
        """Returns a `KeyCapacity`, which tells how many more jobs of each key may run now."""
        return KeyCapacity(self.transaction, queue, settings, SQL.running_with_key)

    def mark_running(
        self,
        queue: str,
        jobs: list[ReadyRow],
        taken: dict[str, tuple[HeldReservation, ...]],
        calls: dict[str, str],
    ) -> None:
        """Marks the jobs as running under the fence of this claim, and stores their reservations. `taken`:
        reservations by job id. `calls`: for each job of a batch, the first job of its call."""
        if not jobs:
            return
        transaction, request = self.transaction, self.request
        if not self._fence:
            self._fence = transaction.advance("fence", 1)
            self._claim = self._claim_id()
        lease = transaction.boot + request.lease
        identity = (self._fence, self._claim, request.worker, request.number, lease, transaction.now)
        transaction.execute(SQL.mark_running, (*identity, apsw.carray(array("q", [job.seq for job in jobs]))))
        transaction.count_change(queue, State.READY, State.RUNNING, len(jobs))
        fence, claim = self._fence, self._claim
        for call, seqs in _by_call(jobs, calls).items():
            transaction.execute(SQL.mark_call, (call, len(seqs), apsw.carray(seqs)))
        for name, reserved in taken.items():
            transaction.ledger.hold((name, fence, claim), request.worker, reserved)
        self.jobs += [
            ClaimedJob(
                job.id, queue, job.task, job.payload.encode(), fence, claim, job.attempts + 1, job.priority,
                job.lane, job.crashes, job.generation, job.timeout, job.trace, job.created, job.due, job.part,
                job.packed_needs or (), calls.get(job.id, "") if calls else "", job.packed_deferred or (),
                job.flow,
            )
            for job in jobs
        ]  # fmt: skip

    def save_number(self) -> None:
        """Stores the number of this claim request. A repeated request with this number gets no new jobs, only
        the jobs of this claim that still run (J33)."""
        transaction, request = self.transaction, self.request
        transaction.execute(
            SQL.save_number,
            (request.worker, request.number, transaction.boot + request.lease, transaction.now),
        )


def _by_call(jobs: list[ReadyRow], calls: dict[str, str]) -> dict[str, array[int]]:
    """Groups the sequence numbers of `jobs` by call. A dict key is the id of a call's first job. Jobs without
    an entry in `calls` are left out."""
    found: dict[str, array[int]] = {}
    for job in jobs if calls else ():
        if job.id in calls:
            found.setdefault(calls[job.id], array("q")).append(job.seq)
    return found


def _by_ids(claiming: SqliteClaim, ids: tuple[str, ...]) -> ClaimResult:
    """Claims the jobs with the given ids (J37). The result lists each job as claimed, as blocked, or as gone
    (ended, expired or unknown)."""
    transaction = claiming.transaction
    blocked: list[str] = []
    missing: list[str] = []
    for name in dict.fromkeys(ids):
        job = transaction.by_id([name]).get(name)
        if job is not None and job.state is State.SCHEDULED and job.due <= transaction.now:
            transaction.save(job, job := transitions.promote_job(job))
        if job is None or job.state in FINAL:
            missing.append(name)
        elif job.state is State.READY and transitions.is_expired(job, transaction.now):
            expire_jobs(transaction, [name])
            missing.append(name)
        elif job.state is State.READY and claiming.remaining > 0 and _open_call(claiming, job):
            taken = _reserved(transaction, job)
            if taken is None:
                blocked.append(name)
                continue
            calls = {} if job.batching is None else {name: name}
            claiming.mark_running(job.queue, [_as_ready(job)], {name: taken} if taken else {}, calls)
            claiming.calls += 1
            transaction.touch(job.queue, job.lane)
        else:
            blocked.append(name)
    transaction.refresh_lanes()
    claiming.save_number()
    return ClaimResult(
        jobs=claiming.jobs,
        blocked=tuple(blocked),
        missing=tuple(missing),
        pool_changes=transaction.take_pool_changes(),
        waited=0.0,
    )


def _open_call(claiming: SqliteClaim, job: Job) -> bool:
    row = claiming.transaction.queue(job.queue)
    if row.pause is not None and row.pause.closed(claiming.transaction.now):
        return False
    settings = claiming.transaction.settings(job.queue)
    free = claiming.free_slots(job.queue, settings)
    return min(free, claiming.key_capacity(job.queue, settings).of(job.lane)) > 0


def _reserved(transaction: SqliteTransaction, job: Job) -> tuple[HeldReservation, ...] | None:
    """Reserves the units that a job needs and returns the reservations. Returns None if a pool denies
    them."""
    if not (job.needs or job.deferred_needs):
        return ()
    ledger = transaction.ledger
    answer = late_calls.reserve_for_job(ledger, job, ledger.now)
    return None if isinstance(answer, ClaimDenial) else answer


def _as_ready(job: Job) -> ReadyRow:
    return ReadyRow(
        job.seq, job.id, job.task, job.payload.decode(), job.priority, job.lane, job.attempts, job.crashes,
        job.generation, job.timeout, job.trace, job.created, job.due, job.part, job.expires,
        job.needs, job.batching, job.deferred_needs, job.flow,
    )  # fmt: skip


def _by_queues(claiming: SqliteClaim) -> ClaimResult:
    transaction, request = claiming.transaction, claiming.request
    times: list[float | None] = []
    open_queues: list[str] = []
    unpaused: list[str] = []
    for share in request.shares:
        end_override(transaction, share.queue)
        _promote(claiming, share.queue)
        _unblock_lanes(claiming, share.queue)
        row = transaction.queue(share.queue)
        if row.pause is not None and row.pause.closed(transaction.now):
            times.append(row.pause.until)
            continue
        times.append(None if row.override is None else row.override.until)
        unpaused.append(share.queue)
        if not _claim_calls(claiming, share.queue, min(share.jobs, claiming.remaining)):
            open_queues.append(share.queue)
    unexhausted = [queue for queue in open_queues if not _claim_calls(claiming, queue, claiming.remaining)]
    more = any(_has_startable_job(claiming, queue) for queue in unexhausted)
    claiming.save_number()
    times += [
        claiming.head(queue).due for queue in unpaused
    ]  # read last: expiring a job may have released a successor
    waits = [time - transaction.now for time in times if time is not None]
    pooled = [queue for queue in unpaused if claiming.head(queue).needs_admission]
    untils = [next_block_end(transaction, queue) for queue in pooled]
    waits += [until - transaction.boot for until in untils if until is not None]
    wait = min((max(0.0, wait) for wait in waits if math.isfinite(wait)), default=None)
    return ClaimResult(
        jobs=claiming.jobs,
        more=more,
        next_due=wait,
        batch_waits=any(has_waiting_batch(transaction, queue) for queue in pooled),
        pool_changes=transaction.take_pool_changes(),
        waited=0.0,
    )


def _promote(claiming: SqliteClaim, queue: str) -> None:
    """Makes the due scheduled jobs of a queue ready (J30)."""
    transaction, due = claiming.transaction, claiming.head(queue).due
    if due is None or due > transaction.now:
        return
    rows = transaction.execute(SQL.due, (queue, transaction.now, MAX_PROMOTED_PER_CLAIM)).fetchall()
    transaction.execute(SQL.promote, (apsw.carray(array("q", [seq for seq, _ in rows])),))
    transaction.count_change(queue, State.SCHEDULED, State.READY, len(rows))
    for lane in {lane for _, lane in rows}:
        transaction.touch(queue, lane)
    transaction.refresh_lanes()
    transaction.topics.add(queue_topic(queue))
    claiming.head(queue, reload=True)


def _unblock_lanes(claiming: SqliteClaim, queue: str) -> None:
    """Unblocks the lanes of a queue whose block has ended, even if the claim can start no job of the queue
    now. Otherwise a worker would claim again and again without waiting."""
    transaction, wake_at = claiming.transaction, claiming.head(queue).wake_at
    if wake_at is not None and wake_at <= transaction.boot:
        transaction.execute(SQL_OF_LANES.unblock_expired, (queue, transaction.boot))


def _claim_calls(claiming: SqliteClaim, queue: str, most: int) -> bool:
    """Claims up to `most` calls of a queue that is not paused. True if the queue has no more jobs that can
    start now."""
    transaction = claiming.transaction
    settings = transaction.settings(queue)
    free = claiming.free_slots(queue, settings)
    limit = min(most, free)
    if limit <= 0:
        return False
    capacity = claiming.key_capacity(queue, settings)
    pooled = claiming.head(queue).needs_admission
    cursor = LaneCursor(transaction, queue, capacity, limit, pooled=pooled)
    admission = LaneAdmission(transaction, queue, capacity) if pooled else None
    picked = select_jobs(
        cursor.first(),
        limit,
        transaction.number("picks"),
        lambda lane, offset, count: _ready(transaction, queue, lane, offset, count),
        lambda job: job.expires is not None and job.expires <= transaction.now,
        admits=None if admission is None else admission.admit,
        following=cursor.next_of_group,
        most=free,
    )
    for lane, served in picked.served.items():
        transaction.touch(queue, lane, served)
    if picked.jobs:
        transaction.advance("picks", picked.calls)
    if admission is None:
        claiming.mark_running(queue, picked.jobs, {}, {})
    else:
        claiming.mark_running(queue, picked.jobs, admission.taken, admission.calls)
    claiming.calls += picked.calls
    expire_jobs(transaction, [job.id for job in picked.passed])
    _set_jobs_aside(transaction, [job.id for job in picked.aside])
    transaction.refresh_lanes()
    if admission is not None:
        admission.block(picked)
    if picked.aside:
        return False
    if picked.passed:
        claiming.head(queue, reload=True)  # expiring a job may have released one with other needs
        return False
    return picked.calls < limit and not cursor.has_reached_limit and not picked.has_blocked_enough


def _set_jobs_aside(transaction: SqliteTransaction, ids: list[str]) -> None:
    for job in transaction.by_id(ids).values():
        transaction.save(job, transitions.set_aside(job))


def _has_startable_job(claiming: SqliteClaim, queue: str) -> bool:
    settings = claiming.transaction.settings(queue)
    if claiming.free_slots(queue, settings) <= 0:
        return False
    pooled = claiming.head(queue).needs_admission
    capacity = claiming.key_capacity(queue, settings)
    return bool(LaneCursor(claiming.transaction, queue, capacity, 1, pooled=pooled).first())


def _ready(transaction: SqliteTransaction, queue: str, lane: str, offset: int, count: int) -> list[ReadyRow]:
    return _READY.decode(transaction.execute(SQL.ready, (queue, lane, count, offset)).get)
