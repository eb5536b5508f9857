"""Selects the lanes of a queue from which a claim may take jobs.

A blocked group has one row; a claim that sees this row skips all lanes of the group. So blocked jobs do not
slow a claim down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from tidemill.core import batch_start, late_calls
from tidemill.core import ledger as core_ledger
from tidemill.core.batch_start import BATCH_WAIT_KEY, BatchStart, BatchWait
from tidemill.core.batching import BatchPolicy
from tidemill.core.jobs import FlowPosition
from tidemill.core.lane_selection import BlockScope, LaneSelection, OpenLane, PeekJobs
from tidemill.core.ledger import ClaimDenial, HeldReservation
from tidemill.core.needs import Need, lane_group, lane_key
from tidemill.core.queues import QueueSettings
from tidemill.stores.sqlite.ledger import LANES as SQL
from tidemill.stores.sqlite.ledger import account_text
from tidemill.stores.sqlite.transaction import SqliteTransaction

UNLIMITED = 2**62
MAX_BLOCKS_PER_CLAIM = 1000
"""Most blocked lanes that one claim visits; the next claim continues from there."""
_LANES_PER_READ = 64
_FIRST_POSITION = (-(2**31), -1, -1)
SINGLE_CALL = BatchStart(1, ())


class ReadyRow(msgspec.Struct, array_like=True, frozen=True):
    """A ready job with the columns that a claim needs, as the statement `ready` in `claim.sql` returns it."""

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
    part: str
    expires: float | None
    packed_needs: tuple[Need, ...] | None = None
    batching: BatchPolicy | None = None
    packed_deferred: tuple[Need, ...] | None = None
    flow: FlowPosition | None = None

    @property
    def deferred_needs(self) -> tuple[Need, ...]:
        return self.packed_deferred or ()

    @property
    def needs(self) -> tuple[Need, ...]:
        return self.packed_needs or ()


class QueueHead(NamedTuple):
    """The first values that a claim reads of a queue.

    - `due`: the wall time when the next scheduled job is due
    - `needs_pools`: nonzero if open lanes need pools
    - `wake_at`: the boot time when the next block ends"""

    due: float | None
    needs_pools: int
    wake_at: float | None

    @property
    def needs_admission(self) -> bool:
        """True if pools or blocks can stop jobs of the queue. If False, the claim need not look at pools and
        blocks."""
        return bool(self.needs_pools) or self.wake_at is not None


class KeyCapacity:
    """How many jobs of each key may still start under `key_concurrency` during this claim. `running`: the SQL
    statement that counts the running jobs of a key."""

    def __init__(
        self, transaction: SqliteTransaction, queue: str, settings: QueueSettings, running: str
    ) -> None:
        self._transaction, self._queue, self._running = transaction, queue, running
        self._limit = settings.key_concurrency
        self._free: dict[str, int] = {}

    def of(self, lane: str) -> int:
        if self._limit is None or not (key := lane_key(lane)):
            return UNLIMITED
        if key not in self._free:
            running: int = self._transaction.execute(self._running, (self._queue, key)).get
            self._free[key] = self._limit - running
        return self._free[key]

    def take(self, lane: str, jobs: int) -> None:
        key = lane_key(lane)
        if key in self._free:
            self._free[key] -= jobs


class LaneCursor:
    """Iterates over the open lanes of each group, in the order in which a claim serves them. Blocks lanes
    whose key is at its concurrency limit.

    - `limit`: the largest number of lanes that `first` returns per group
    - `pooled`: False reads only the group without pools"""

    def __init__(
        self, transaction: SqliteTransaction, queue: str, capacity: KeyCapacity, limit: int, *, pooled: bool
    ) -> None:
        self._limit = limit
        groups = [""]
        if pooled:
            rows = transaction.execute(SQL.open_groups, (queue, transaction.boot))
            groups = [group for (group,) in rows]
        self._groups = {group: _lanes(transaction, queue, capacity, limit, group) for group in groups}
        self._visited = 0

    @property
    def has_reached_limit(self) -> bool:
        return self._visited >= MAX_BLOCKS_PER_CLAIM

    def first(self) -> list[OpenLane]:
        return [lane for lanes in self._groups.values() for lane in islice(lanes, self._limit)]

    def next_of_group(self, group: str) -> OpenLane | None:
        self._visited += 1
        return None if self.has_reached_limit else next(self._groups[group], None)


# No method of LaneCursor: generator and cursor would form a cycle that only the garbage collector frees.
def _lanes(
    transaction: SqliteTransaction, queue: str, capacity: KeyCapacity, limit: int, group: str
) -> Iterator[OpenLane]:
    """Yields the open lanes of a group in serving order, and blocks lanes whose key is at its limit. Reads
    `limit` lanes first and more on demand."""
    after, count = _FIRST_POSITION, limit
    while True:
        rows = transaction.execute(SQL.open_lanes, (queue, group, *after, count)).fetchall()
        for name, served, priority, seq in rows:
            free = capacity.of(name)
            if free > 0:
                yield OpenLane(name, served, priority, seq, free, group)
            else:
                transaction.execute(SQL.block_full_lane, (queue, name))
        if len(rows) < count:
            return
        _, served, priority, seq = rows[-1]
        after, count = (priority, served, seq), max(count, _LANES_PER_READ)


class LaneAdmission:
    """Decides for each job of a claim whether it may start, and reserves its units. Records which lanes and
    groups are blocked."""

    def __init__(self, transaction: SqliteTransaction, queue: str, capacity: KeyCapacity) -> None:
        self._transaction, self._queue, self._capacity = transaction, queue, capacity
        self.taken: dict[str, tuple[HeldReservation, ...]] = {}
        self.calls: dict[str, str] = {}
        self._started: set[str] = set()
        self._full_lanes: set[str] = set()
        self._waiting_batches: dict[str, BatchWait] = {}
        self._denials: dict[str, tuple[ClaimDenial, int]] = {}

    def admit(self, job: ReadyRow, ahead: PeekJobs[ReadyRow], most: int) -> int | BlockScope:
        most = min(most, self._capacity.of(job.lane))
        if most <= 0:  # another lane of the same key used the limit up
            self._full_lanes.add(job.lane)
            return BlockScope.LANE_BLOCKED
        answer = self._start(job, ahead, most)
        if isinstance(answer, BatchWait):
            self._waiting_batches[job.lane] = answer
            return BlockScope.LANE_BLOCKED
        if isinstance(answer, ClaimDenial):
            gate = answer.gate(job.lane)
            name = lane_group(job.lane) if gate is BlockScope.GROUP_BLOCKED else job.lane
            self._denials[name] = (answer, job.priority)
            return gate
        if answer.reserved:
            self.taken[job.id] = answer.reserved
        self._capacity.take(job.lane, answer.jobs)
        return answer.jobs

    def _start(
        self, job: ReadyRow, ahead: PeekJobs[ReadyRow], most: int
    ) -> BatchWait | ClaimDenial | BatchStart:
        if job.batching is not None:
            return self._start_batch(job.batching, ahead(job.batching.max_items), most)
        if not (job.packed_needs or job.packed_deferred):
            return SINGLE_CALL
        ledger, lane = self._transaction.ledger, (self._queue, job.lane)
        answer = late_calls.reserve_for_job(ledger, job, ledger.now, lane)
        return answer if isinstance(answer, ClaimDenial) else BatchStart(1, answer)

    def _start_batch(
        self, rule: BatchPolicy, waiting: Sequence[ReadyRow], most: int
    ) -> BatchWait | ClaimDenial | BatchStart:
        """Starts one call of a batch lane, or returns why the call cannot start now (B1 to B4). `waiting`:
        the first jobs of the lane. `most`: how many of these jobs may run."""
        ledger, now, lane = self._transaction.ledger, self._transaction.now, waiting[0].lane
        answer = batch_start.start_batch(
            ledger,
            rule,
            waiting,
            most,
            lambda job: job.expires is not None and job.expires <= now,
            self._batch_due_at(lane),
            ledger.now,
            (self._queue, lane),
        )
        if isinstance(answer, BatchStart):
            self._started.add(lane)
            self.calls.update((job.id, waiting[0].id) for job in waiting[: answer.jobs])
        return answer

    def _batch_due_at(self, lane: str) -> float | None:
        """Returns when the waiting batch of a lane must start even if it is not full. Returns None if no time
        is stored, or if this claim already started a call of the lane."""
        if lane in self._started:
            return None
        known: float | None = self._transaction.execute(
            SQL.batch_due_at, (self._queue, lane, account_text(BATCH_WAIT_KEY))
        ).get
        return known

    def block(self, picked: LaneSelection[ReadyRow]) -> None:
        """Stores a block for each lane and group that cannot start now according to `picked` (P12, B2)."""
        transaction, queue = self._transaction, self._queue
        for lane in picked.blocked_lanes:
            if lane in self._full_lanes:
                transaction.execute(SQL.block_full_lane, (queue, lane))
                continue
            waiting = self._waiting_batches.get(lane)
            block = self._block_of(lane) if waiting is None else waiting.lane_block(transaction.boot)
            missing_jobs = 0 if waiting is None else waiting.missing_jobs
            transaction.execute(
                SQL.block_lane, (block.retry_at, account_text(block.account_key), missing_jobs, queue, lane)
            )
        for group in picked.blocked_groups:
            block = self._block_of(group)
            row = (queue, group, block.pool, block.priority, block.until, block.retry_at)
            transaction.execute(SQL.block_group, row)

    def _block_of(self, name: str) -> core_ledger.LaneBlock:
        (denial, priority), ledger = self._denials[name], self._transaction.ledger
        override_end = ledger.override_ends((denial.need.pool, denial.need.key))
        return core_ledger.make_block(denial, priority, override_end, ledger.now)


def next_block_end(transaction: SqliteTransaction, queue: str) -> float | None:
    """Returns the boot time when the next block of the queue ends; None if no block has an end."""
    until: float | None = transaction.execute(SQL.next_block_end, (queue, transaction.boot)).get
    return until


def has_waiting_batch(transaction: SqliteTransaction, queue: str) -> bool:
    """True if a batch lane of the queue waits for more jobs."""
    return bool(transaction.execute(SQL.has_waiting_batch, (queue, account_text(BATCH_WAIT_KEY))).get)
