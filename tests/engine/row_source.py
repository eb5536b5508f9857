"""The smallest possible store: rows of a Records object, loaded one by one and as few as possible.

Shows that verbs need only the rows they ask for, and what writing their changes takes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidemill.contract.reader import ATTEMPTS_KEPT, LOG_LINES_PER_ATTEMPT
from tidemill.core.batch_start import BATCH_WAIT_KEY
from tidemill.core.pool_statistics import PoolHistoryEntry
from tidemill.engine import queries
from tidemill.engine.changes import Changes, JobUpdate
from tidemill.engine.indexes import SortedKeys, SortKey
from tidemill.engine.ledger import AbandonedClaim
from tidemill.engine.queries import (
    KeyPrefix,
    LaneGroupRow,
    LaneRow,
    QueueSettingsRow,
    RowQuery,
    Rows,
    StoreCounters,
)
from tidemill.engine.records import Records


class RecordsSource:
    """`usual`: how many keys of an order are returned by default. `refusals`: which of the next commits are
    refused."""

    def __init__(self, records: Records, usual: int, refusals: list[bool]) -> None:
        self._records, self._usual, self._refusals = records, usual, refusals
        self._fences = 0

    async def load(self, wanted: Mapping[RowQuery, int]) -> tuple[Rows, StoreCounters]:
        records = self._records
        clock, given = records.clock, (records.picks, records.seq, records.fence)
        numbers = StoreCounters(clock.wall(), clock.boot(), clock.boot_id, *given)
        rows = {want: self._answer(want, count) for want, count in wanted.items()}
        for want in wanted:
            if isinstance(want, queries.ClaimPrefetch) and self._usual > 1 and want.queue in records.queues:
                rows |= {ahead: self._answer(ahead, want.lanes) for ahead in self._ahead(want)}
        return rows, numbers

    def _ahead(self, want: queries.ClaimPrefetch) -> Iterator[RowQuery]:
        records, queue = self._records, self._records.queues[want.queue]
        name, lanes = want.queue, queue.lanes
        yield from (
            queries.QueueByName(name),
            queries.ScheduledJobs(name),
            queries.LaneWakeTimes(name),
        )
        yield queries.BlockedLanes(name, BATCH_WAIT_KEY)
        boot, wall = records.clock.boot(), records.clock.wall()
        yield from (queries.JobById(key[-1]) for key in queue.scheduled.walk() if key[0] <= wall)
        due = [lane for again, lane in self._wakes(name, self._usual).first if again <= boot]
        served = [key[-1] for order in lanes._orders.values() for key in order.slice(0, want.lanes)]
        yield from (queries.OpenLanesOfGroup(name, group) for group in lanes._orders)
        each = want.limit + 1 if len(served) == 1 else max(2, want.limit // max(1, len(served)) + 1)
        for lane in {*due, *served}:
            yield queries.LaneByName(name, lane)
            yield from map(queries.JobById, lanes.ids(lane, 0, each))

    async def take_seqs(self, count: int) -> list[int]:
        return [self._records.next_seq() for _ in range(count)]

    async def take_fence(self) -> int:
        self._fences += 1
        return self._records.next_fence()

    async def commit(self, changes: Changes, rows: Rows) -> bool:
        if self._refusals and self._refusals.pop():
            self._records.fence -= self._fences  # not allocated after all: lockstep compares it
            return False
        for want in changes.read:
            assert self._answer(want, _looked(rows[want])) == rows[want], f"{want} was not what it is"
        _write(self._records, changes)
        return True

    def _answer(self, want: RowQuery, count: int) -> Any:  # noqa: C901, PLR0912 - a line for each kind
        records, pool_ledger = self._records, self._records.pool_ledger
        match want:
            case queries.JobById(id_):
                return records.jobs.get(id_)
            case queries.KnownIdByRequest(request):
                return records.memory.get(request)
            case queries.UniqueHolders(queue, key):
                return _by_seq(records, records.unique_holders.of((queue, key)))
            case queries.JobSuccessors(job):
                return _by_seq(records, records.successors.of(job))
            case queries.WorkerRunningJobs(worker):
                return _by_seq(records, records.running.of(worker))
            case queries.OverdueJobs(dead):
                over = records.overdue(records.clock.boot(), frozenset(dead))
                return _by_seq(records, (job.id for job in over))
            case queries.PoolByName(name):
                pool = pool_ledger.pools.get(name)
                return pool and type(pool)(pool.declared, pool.override)
            case queries.PoolNames():
                return tuple(pool_ledger.pools)
            case queries.AccountByKey(place):
                return pool_ledger.accounts.get(place)
            case queries.PoolAccountKeys(pool):
                return tuple(pool_ledger.account_keys_of(pool))
            case queries.ClaimReservations(claim):
                return tuple(pool_ledger.reserved.get(claim, ()))
            case queries.AccountReservationCount(place):
                return pool_ledger.reservations(place)
            case queries.PoolClaims(pool):
                return tuple(pool_ledger.claims_of_pool(pool))
            case queries.AbandonedClaims(dead):
                return tuple(pool_ledger.abandoned_claims(records.clock.boot(), frozenset(dead)))
            case queries.UnconfirmedSince(claim):
                return pool_ledger.unconfirmed_units.get(claim)
            case queries.WorkerById(id_):
                return records.workers.get(id_)
            case queries.JobCheckpoints(job):
                return tuple(records.checkpoints.get(job, {}).values())
            case queries.DocumentById(kind, id_):
                return records.documents.get((kind, id_))
            case queries.ArrivalBySeq(seq):
                return records.arrivals.get(seq)
            case queries.BlockedQueues(place):
                return tuple(
                    name
                    for name, queue in records.queues.items()
                    if queue.lanes._blocked.of(place)
                    or any(mark.account_key == place for mark in queue.lanes.blocked_groups.values())
                )
            case queries.ClaimPrefetch():
                return None  # the verb asks for all of it by itself
        return self._of_queue(want, count)

    def _of_queue(self, want: Any, count: int) -> Any:
        if isinstance(want, queries.QueueByName):
            return self._queue(want.name)
        queue = self._records.queues.get(want.queue)
        match want:
            case queries.StateCount():
                return 0 if queue is None else queue.counts.of(want.state)
            case queries.KeyRunningCount():
                return 0 if queue is None else queue.running_in.of(want.key)
            case queries.BlockedLanes():
                return () if queue is None else tuple(queue.lanes._blocked.of(want.account_key))
            case queries.ScheduledJobs():
                return KeyPrefix() if queue is None else _beginning(queue.scheduled, count or self._usual)
            case queries.OpenLanesOfGroup():
                order = None if queue is None else queue.lanes._orders.get(want.group)
                return KeyPrefix() if order is None else _beginning(order, count or self._usual)
            case queries.LaneWakeTimes():
                return KeyPrefix() if queue is None else self._wakes(want.queue, count)
            case queries.LaneByName():
                return None if queue is None else self._lane(want.queue, want.lane, count)
        raise AssertionError(want)

    def _queue(self, name: str) -> QueueSettingsRow | None:
        queue = self._records.queues.get(name)
        if queue is None:
            return None
        sizes, marks = queue.lanes._sizes, queue.lanes.blocked_groups
        groups = {group: LaneGroupRow(sizes[group], marks.get(group)) for group in {*sizes, *marks}}
        return QueueSettingsRow(queue.declared, queue.override, queue.pause, groups)

    def _lane(self, queue: str, name: str, count: int) -> LaneRow | None:
        lane = self._records.queues[queue].lanes._lanes.get(name)
        if lane is None:
            return None
        return LaneRow(
            lane.served,
            lane.block,
            lane.missing_jobs,
            lane.batch_due,
            _beginning(lane.jobs, count or self._usual),
        )

    def _wakes(self, queue: str, count: int) -> KeyPrefix:
        lanes = self._records.queues[queue].lanes._lanes
        times = sorted((lane.block.retry_at, name) for name, lane in lanes.items() if lane.block is not None)
        first = times[: count or self._usual]
        return KeyPrefix(tuple(first), complete=len(first) == len(times))


def _by_seq(records: Records, ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(ids, key=lambda id_: records.jobs[id_].seq))


def _beginning(order: SortedKeys, count: int) -> KeyPrefix:
    first: list[SortKey] = order.slice(0, count)
    return KeyPrefix(tuple(first), complete=len(first) == len(order))


def _looked(row: Any) -> int:
    if isinstance(row, LaneRow):
        row = row.jobs
    return len(row.first) if isinstance(row, KeyPrefix) else 0


def _write(records: Records, changes: Changes) -> None:
    for name, row in changes.queues.items():
        queue = records.queue(name)
        queue.declared, queue.override, queue.pause = row.declared, row.override, row.pause
    for moved in sorted(changes.jobs, key=_place):
        _move(records, moved)
    records.forget_empty_lanes()
    for (name, lane), state in changes.lanes.items():
        if state is not None:
            _set_lane(records, name, lane, state)
    for (name, group), mark in changes.groups.items():
        marks = records.queues[name].lanes.blocked_groups
        marks.pop(group, None)
        if mark is not None:
            marks[group] = mark
    records.picks += changes.picked
    _write_rows(records, changes)
    _write_reservations(records, changes)
    _append(records, changes)


def _write_rows(records: Records, changes: Changes) -> None:
    for request, known in changes.known_ids.items():
        records.memory.pop(request, None)
        records.memory[request] = known
    for seq in changes.arrivals:
        del records.arrivals[seq]
    records.workers.update(changes.workers)
    for at, document in changes.documents.items():
        if document is not None:
            records.put_document(document)
        elif at in records.documents:
            records.drop_document(records.documents[at])
    records.take_work_marks(changes.taken)
    for mark_work in changes.work_marks:
        records.mark_work(*mark_work.document, mark_work.job)
    for job, steps in changes.checkpoints.items():
        records.checkpoints[job] = {checkpoint.step: checkpoint for checkpoint in steps}
    records.pool_ledger.pools.update(changes.pools)
    for place, account in changes.accounts.items():
        records.pool_ledger.accounts[place] = account
        records.pool_ledger._last_used[place] = records.clock.wall()


def _place(moved: JobUpdate) -> tuple[bool, int]:
    """Sorts new jobs last and in their order: records keep them by seq."""
    job = moved.after or moved.before
    assert job is not None
    return moved.before is None, job.seq


def _move(records: Records, moved: JobUpdate) -> None:
    if moved.after is not None:
        records.put(moved.after)
    elif moved.before is not None:
        job = moved.before
        records.queues[job.queue].remove_job(job)
        records._unlink(job)
        del records.jobs[job.id]
        records._forget_details(job.id)


def _set_lane(records: Records, queue: str, name: str, row: LaneRow) -> None:
    lanes = records.queues[queue].lanes
    lane = lanes._lanes[name]
    lanes._remove_from_order(name, lane)
    lanes._unblock(name, lane)
    lane.served = row.served
    if row.block is None:
        lanes._insert_in_order(name, lane)
    else:
        lanes._insert_in_order(name, lane)
        lanes.block(name, row.block, row.missing_jobs)
    lane.missing_jobs, lane.batch_due = row.missing_jobs, row.batch_due


def _write_reservations(records: Records, changes: Changes) -> None:
    pool_ledger = records.pool_ledger
    for claim, held in changes.reserved.items():
        for gone in pool_ledger.reserved.pop(claim, ()):
            pool_ledger._open.change(gone.account_key, -1)
        pool_ledger.add_reservations(claim, held)
    for claim, left in changes.left.items():
        pool_ledger.left.pop(claim, None)
        if isinstance(left, AbandonedClaim):
            pool_ledger.left[claim] = left
    for claim, since in changes.unconfirmed_units.items():
        pool_ledger.unconfirmed_units.pop(claim, None)
        if since is not None:
            pool_ledger.unconfirmed_units[claim] = since


def _append(records: Records, changes: Changes) -> None:
    for job, attempts in changes.attempts.items():
        records.attempts.setdefault(job, deque(maxlen=ATTEMPTS_KEPT)).extend(attempts)
    for job, lines in changes.logs.items():
        for line in lines:
            of_job = records.logs.setdefault(job, {})
            of_job.setdefault((line.generation, line.attempt), deque(maxlen=LOG_LINES_PER_ATTEMPT)).append(
                line
            )
    for (name, minute), counts in changes.history.items():
        records.queue(name).history.setdefault(minute, Counter()).update(counts)
    for (pool, minute), what in changes.pool_history.items():
        minutes = records.pool_ledger.history.setdefault(pool, {})
        minutes[minute] = minutes.get(minute, PoolHistoryEntry()).plus(what)
