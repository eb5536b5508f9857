"""claim: up to `limit` jobs of some queues, or exactly the ones named."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable

import apsw
import msgspec

from tidemill.contract.jobs import PROMOTE_AT_ONCE
from tidemill.contract.wakeups import queue_topic
from tidemill.core import extras, transitions
from tidemill.core.batching import by_calls
from tidemill.core.claims import Claimed, ClaimRequest, Claims
from tidemill.core.job import Job
from tidemill.core.lanes import pick
from tidemill.core.ledger import Reserved, Stopped
from tidemill.core.queues import QueueSettings
from tidemill.core.states import FINAL, State
from tidemill.stores.sqlite.expire import expire
from tidemill.stores.sqlite.lanes import UNLIMITED, Doors, Look, Offer, Ready, Rooms, lingers, next_wait
from tidemill.stores.sqlite.ledger import LANES as SQL_OF_LANES
from tidemill.stores.sqlite.queues import end_override
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("claim")


_READY = msgspec.json.Decoder(list[Ready])


def claim(transaction: Transaction, request: ClaimRequest, claim_id: Callable[[], int]) -> Claims:
    last = transaction.execute(SQL.last_claim, (request.worker,)).get
    if last is not None and request.number <= last:
        held = transaction.jobs(SQL.of_claim, (request.worker, request.number))
        return Claims(jobs=[transitions.in_hand(job) for job in by_calls(held)])
    claiming = Claiming(transaction, request, claim_id)
    if request.ids is not None:
        return _by_ids(claiming, request.ids)
    return _by_queues(claiming)


class Claiming:
    """One claim under way: its identity, and the jobs it has so far."""

    def __init__(self, transaction: Transaction, request: ClaimRequest, claim_id: Callable[[], int]) -> None:
        self.transaction, self.request = transaction, request
        self.jobs: list[Claimed] = []
        self.calls = 0
        self._looks: dict[str, Look] = {}
        self._claim_id = claim_id
        self._fence = self._claim = 0

    @property
    def left(self) -> int:
        """A call of several jobs is one of the limit."""
        return self.request.limit - self.calls

    def look(self, queue: str, *, again: bool = False) -> Look:
        if again or queue not in self._looks:
            self._looks[queue] = Look(*self.transaction.execute(SQL.look, (queue,)).fetchone())
        return self._looks[queue]

    def room(self, queue: str, settings: QueueSettings) -> int:
        """How many jobs of the queue may start now, by its fleet-wide limit."""
        if settings.concurrency is None:
            return UNLIMITED
        running: int = self.transaction.execute(SQL.running, (queue,)).get
        return settings.concurrency - running

    def rooms(self, queue: str, settings: QueueSettings) -> Rooms:
        """How many jobs of each of its keys may start now."""
        return Rooms(self.transaction, queue, settings, SQL.running_with_key)

    def mark(
        self, queue: str, jobs: list[Ready], taken: dict[str, tuple[Reserved, ...]], calls: dict[str, str]
    ) -> None:
        """Jobs become running under this claim's one fence, with what they took of their pools. `calls` names
        the first job of each one's call, where it is of a batch."""
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
        for call, seqs in _by_call(jobs, calls).items():
            transaction.execute(SQL.mark_call, (call, len(seqs), apsw.carray(seqs)))
        for name, reserved in taken.items():
            transaction.ledger.hold((name, fence, claim), request.worker, reserved)
        self.jobs += [
            Claimed(
                job.id, queue, job.task, job.payload.encode(), fence, claim, job.attempts + 1, job.priority,
                job.lane, job.crashes, job.generation, job.timeout, job.trace, job.created, job.due, job.part,
                job.packed_needs or (), calls.get(job.id, "") if calls else "", job.packed_extra or (),
                job.flow,
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


def _by_call(jobs: list[Ready], calls: dict[str, str]) -> dict[str, array[int]]:
    """The places of the jobs of each call."""
    found: dict[str, array[int]] = {}
    for job in jobs if calls else ():
        if job.id in calls:
            found.setdefault(calls[job.id], array("q")).append(job.seq)
    return found


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
            taken = _reserved(transaction, job)
            if taken is None:
                blocked.append(name)
                continue
            calls = {} if job.batching is None else {name: name}
            claiming.mark(job.queue, [_as_ready(job)], {name: taken} if taken else {}, calls)
            claiming.calls += 1
            transaction.touch(job.queue, job.lane)
        else:
            blocked.append(name)
    transaction.refresh_lanes()
    claiming.note()
    return Claims(
        jobs=claiming.jobs,
        blocked=tuple(blocked),
        gone=tuple(gone),
        news=transaction.take_news(),
        waited=0.0,
    )


def _open(claiming: Claiming, job: Job) -> bool:
    row = claiming.transaction.queue(job.queue)
    if row.pause is not None and row.pause.closed(claiming.transaction.now):
        return False
    settings = claiming.transaction.settings(job.queue)
    room = claiming.room(job.queue, settings)
    return min(room, claiming.rooms(job.queue, settings).of(job.lane)) > 0


def _reserved(transaction: Transaction, job: Job) -> tuple[Reserved, ...] | None:
    """What a job takes of its pools; None when one of them refuses."""
    if not (job.needs or job.extra):
        return ()
    ledger = transaction.ledger
    answer = extras.ask_for(ledger, job, ledger.now)
    return None if isinstance(answer, Stopped) else answer


def _as_ready(job: Job) -> Ready:
    return Ready(
        job.seq, job.id, job.task, job.payload.decode(), job.priority, job.lane, job.attempts, job.crashes,
        job.generation, job.timeout, job.trace, job.created, job.due, job.part, job.expires,
        job.needs, job.batching, job.extra, job.flow,
    )  # fmt: skip


def _by_queues(claiming: Claiming) -> Claims:
    transaction, request = claiming.transaction, claiming.request
    times: list[float | None] = []
    open_queues: list[str] = []
    unpaused: list[str] = []
    for share in request.shares:
        end_override(transaction, share.queue)
        _promote(claiming, share.queue)
        _wake(claiming, share.queue)
        row = transaction.queue(share.queue)
        if row.pause is not None and row.pause.closed(transaction.now):
            times.append(row.pause.until)
            continue
        times.append(None if row.override is None else row.override.until)
        unpaused.append(share.queue)
        if not _take(claiming, share.queue, min(share.jobs, claiming.left)):
            open_queues.append(share.queue)
    unexhausted = [queue for queue in open_queues if not _take(claiming, queue, claiming.left)]
    more = any(_startable(claiming, queue) for queue in unexhausted)
    claiming.note()
    times += [claiming.look(queue).due for queue in unpaused]  # only now: what expired may have released one
    waits = [time - transaction.now for time in times if time is not None]
    pooled = [queue for queue in unpaused if claiming.look(queue).waits]
    untils = [next_wait(transaction, queue) for queue in pooled]
    waits += [until - transaction.boot for until in untils if until is not None]
    wait = min((max(0.0, wait) for wait in waits if math.isfinite(wait)), default=None)
    return Claims(
        jobs=claiming.jobs,
        more=more,
        next_due=wait,
        lingers=any(lingers(transaction, queue) for queue in pooled),
        news=transaction.take_news(),
        waited=0.0,
    )


def _promote(claiming: Claiming, queue: str) -> None:
    """Due jobs become ready."""
    transaction, due = claiming.transaction, claiming.look(queue).due
    if due is None or due > transaction.now:
        return
    rows = transaction.execute(SQL.due, (queue, transaction.now, PROMOTE_AT_ONCE)).fetchall()
    transaction.execute(SQL.promote, (apsw.carray(array("q", [seq for seq, _ in rows])),))
    transaction.counted(queue, State.SCHEDULED, State.READY, len(rows))
    for lane in {lane for _, lane in rows}:
        transaction.touch(queue, lane)
    transaction.refresh_lanes()
    transaction.topics.add(queue_topic(queue))
    claiming.look(queue, again=True)


def _wake(claiming: Claiming, queue: str) -> None:
    """Lanes whose wait is over are open, whether or not anything may start: else it would be over again with
    every claim, and nobody would rest."""
    transaction, wake = claiming.transaction, claiming.look(queue).wake
    if wake is not None and wake <= transaction.boot:
        transaction.execute(SQL_OF_LANES.wake, (queue, transaction.boot))


def _take(claiming: Claiming, queue: str, wanted: int) -> bool:
    """Claim up to `wanted` calls of an open queue; True when it has nothing more to give."""
    transaction = claiming.transaction
    settings = transaction.settings(queue)
    room = claiming.room(queue, settings)
    limit = min(wanted, room)
    if limit <= 0:
        return False
    rooms = claiming.rooms(queue, settings)
    pooled = claiming.look(queue).waits
    offer = Offer(transaction, queue, rooms, limit, pooled=pooled)
    doors = Doors(transaction, queue, rooms) if pooled else None
    picked = pick(
        offer.first(),
        limit,
        transaction.number("picks"),
        lambda lane, offset, count: _ready(transaction, queue, lane, offset, count),
        lambda job: job.expires is not None and job.expires <= transaction.now,
        admits=None if doors is None else doors.admits,
        following=offer.following,
        most=room,
    )
    for lane, served in picked.served.items():
        transaction.touch(queue, lane, served)
    if picked.jobs:
        transaction.advance("picks", picked.calls)
    if doors is None:
        claiming.mark(queue, picked.jobs, {}, {})
    else:
        claiming.mark(queue, picked.jobs, doors.taken, doors.calls)
    claiming.calls += picked.calls
    expire(transaction, [job.id for job in picked.passed])
    _set_aside(transaction, [job.id for job in picked.aside])
    transaction.refresh_lanes()
    if doors is not None:
        doors.shut(picked)
    if picked.aside:
        return False
    if picked.passed:
        claiming.look(queue, again=True)  # an end may have released a job, with other needs
        return False
    return picked.calls < limit and not offer.is_cut and not picked.gave_way


def _set_aside(transaction: Transaction, ids: list[str]) -> None:
    for job in transaction.by_id(ids).values():
        transaction.save(job, transitions.aside(job))


def _startable(claiming: Claiming, queue: str) -> bool:
    settings = claiming.transaction.settings(queue)
    if claiming.room(queue, settings) <= 0:
        return False
    pooled = claiming.look(queue).waits
    rooms = claiming.rooms(queue, settings)
    return bool(Offer(claiming.transaction, queue, rooms, 1, pooled=pooled).first())


def _ready(transaction: Transaction, queue: str, lane: str, offset: int, count: int) -> list[Ready]:
    return _READY.decode(transaction.execute(SQL.ready, (queue, lane, count, offset)).get)
