"""The records of one transaction of a database store. They contain only the loaded rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from tidemill.clock import Clock, Entropy
from tidemill.contract.coordination import worklist_topic
from tidemill.contract.jobs import Arrival
from tidemill.core.accounts import Account
from tidemill.core.checkpoints import Checkpoint, StepKey
from tidemill.core.documents import Document, DocumentKind
from tidemill.core.jobs import Job
from tidemill.core.ledger import AccountKey, HeldReservation
from tidemill.core.needs import is_aside_lane
from tidemill.core.queues import InsertVerdict
from tidemill.engine import queries
from tidemill.engine.indexes import SortedKeys
from tidemill.engine.lanes import Lane, Lanes
from tidemill.engine.ledger import AbandonedClaim, ClaimKey, PoolLedger, PoolRecord
from tidemill.engine.loaded_tables import (
    LoadedCounts,
    LoadedIndex,
    LoadedRows,
    LoadedTable,
    PrefixKeys,
    WriteOnlyTable,
)
from tidemill.engine.queries import (
    UNKNOWN_PREFIX,
    LaneRow,
    NotLoaded,
    QueueSettingsRow,
    Rows,
    StoreCounters,
)
from tidemill.engine.queue import FINAL_STATES, Queue
from tidemill.engine.records import KnownId, KnownWorker, Records, WorkMark


class LoadedQueue(Queue):
    """A queue whose jobs and counters come from loaded rows. Its lists of finished jobs can only be
    written."""

    def __init__(self, name: str, row: QueueSettingsRow, clock: Clock, loaded: LoadedRows) -> None:
        super().__init__(name, clock)
        self.declared, self.override, self.pause = row.declared, row.override, row.pause
        self.counts = LoadedCounts(loaded, lambda state: queries.StateCount(name, state))
        self.running_in = LoadedCounts(loaded, lambda key: queries.KeyRunningCount(name, key))
        self.lanes: LoadedLanes = LoadedLanes(name, row, loaded)
        scheduled = queries.ScheduledJobs(name)
        self.scheduled = PrefixKeys(loaded.prefix(scheduled), scheduled)
        self.ended = {state: PrefixKeys(UNKNOWN_PREFIX, scheduled) for state in FINAL_STATES}
        self.ended_parts = PrefixKeys(UNKNOWN_PREFIX, scheduled)


class LoadedLanes(Lanes):
    """The lanes of a queue, from loaded rows."""

    def __init__(self, queue: str, row: QueueSettingsRow, loaded: LoadedRows) -> None:
        super().__init__()
        self._queue, self._wake_times = queue, loaded.prefix(queries.LaneWakeTimes(queue))
        self._lanes: LoadedTable[str, Lane] = LoadedTable(
            loaded, lambda name: queries.LaneByName(queue, name), self._lane_of
        )
        self._orders: dict[str, SortedKeys] = {}
        self._sizes = Counter({group: known.size for group, known in row.groups.items() if known.size})
        for group in self._sizes:
            want = queries.OpenLanesOfGroup(queue, group)
            self._orders[group] = PrefixKeys(loaded.prefix(want), want)
        self.blocked_groups = {group: known.block for group, known in row.groups.items() if known.block}
        self._blocked: LoadedIndex[AccountKey] = LoadedIndex(
            loaded, lambda account_key: queries.BlockedLanes(queue, account_key)
        )
        self._wakes = [(retry_at, name) for retry_at, name in self._wake_times.first]

    def _lane_of(self, name: str, row: LaneRow) -> Lane:
        lane = Lane(name, row.served)
        lane.jobs = PrefixKeys(row.jobs, queries.LaneByName(self._queue, name))
        lane.block, lane.missing_jobs, lane.batch_due = row.block, row.missing_jobs, row.batch_due
        return lane

    def add(self, job: Job, picks: int, *, fresh: bool) -> None:
        """Adds a ready job, as `Lanes.add` does."""
        if is_aside_lane(job.lane):
            self._lanes.assume_new(job.lane)  # the lane is used by this job only
        super().add(job, picks, fresh=fresh)

    def has_blocked(self, account_key: AccountKey) -> bool:
        """True if this transaction blocked a lane that waits for the account, or if a loaded group waits for
        it."""
        return self._blocked.added(account_key) or any(
            mark.account_key == account_key for mark in self.blocked_groups.values()
        )

    def _next_wake(self) -> tuple[float, str] | None:
        first = super()._next_wake()
        if first is None and not self._wake_times.complete:
            raise NotLoaded(queries.LaneWakeTimes(self._queue), 2 * len(self._wake_times.first) + 1)
        return first

    def after(self) -> dict[str, LaneRow | None]:
        """Returns the current state of all lanes that were read or written; None for a deleted lane."""
        return {name: None if lane is None else _lane_row(lane) for name, lane in self._lanes.after()}


def _lane_row(lane: Lane) -> LaneRow:
    return LaneRow(lane.served, lane.block, lane.missing_jobs, lane.batch_due)


class LoadedLedger(PoolLedger):
    """The pool ledger of a transaction, from loaded rows. `new_fence` is the fence of the claim that this
    transaction makes; None if it makes none."""

    def __init__(
        self, clock: Clock, freed: Callable[[AccountKey], None], loaded: LoadedRows, new_fence: int | None
    ) -> None:
        super().__init__(clock, freed)
        self._loaded, self._new_fence = loaded, new_fence
        self.pools: LoadedTable[str, PoolRecord] = LoadedTable(
            loaded, queries.PoolByName, lambda _, pool: replace(pool)
        )
        self.accounts: LoadedTable[AccountKey, Account] = LoadedTable(
            loaded, queries.AccountByKey, lambda _, account: account
        )
        self.reserved: LoadedTable[ClaimKey, list[HeldReservation]] = LoadedTable(
            loaded, queries.ClaimReservations, lambda _, held: list(held)
        )
        self.left: WriteOnlyTable[ClaimKey, AbandonedClaim] = WriteOnlyTable()
        self.unconfirmed_units: LoadedTable[ClaimKey, float] = LoadedTable(
            loaded, queries.UnconfirmedSince, lambda _, since: since
        )
        self._open = LoadedCounts(loaded, queries.AccountReservationCount)

    def add_reservations(self, claim: ClaimKey, allocated: Any) -> None:
        if claim[1] == self._new_fence:
            self.reserved.assume_new(claim)
        super().add_reservations(claim, allocated)

    def recount_units(self, claim: ClaimKey) -> None:
        if self.reserved.get(claim):
            super().recount_units(claim)

    def pool_names(self) -> list[str]:
        return list(self._loaded(queries.PoolNames()) or ())

    def account_keys_of(self, pool: str) -> list[AccountKey]:
        known = list(self._loaded(queries.PoolAccountKeys(pool)) or ())
        return known + [
            account_key
            for account_key in self.accounts
            if account_key[0] == pool and account_key not in known
        ]

    def claims_of_pool(self, pool: str) -> list[ClaimKey]:
        return list(self._loaded(queries.PoolClaims(pool)) or ())

    def abandoned_claims(self, boot: float, dead: frozenset[str]) -> list[ClaimKey]:  # noqa: ARG002 - the store has filtered
        return list(self._loaded(queries.AbandonedClaims(tuple(sorted(dead)))) or ())


T = TypeVar("T")


class FrozenClock:
    """A clock that always shows the time at which the transaction started."""

    def __init__(self, counters: StoreCounters) -> None:
        self._counters = counters
        self.boot_id = counters.boot_id

    def wall(self) -> float:
        return self._counters.wall

    def boot(self) -> float:
        return self._counters.boot


class AllocatedNumbers(msgspec.Struct):
    """The sequence numbers, fence and random values that belong to a transaction. Every further run of its
    engine function uses the same ones."""

    seqs: list[int] = []
    fence: int | None = None
    claims: list[int] = []
    chances: list[float] = []


class ReplayedEntropy:
    """The random values of one transaction. When the engine function runs again, it gets the same values in
    the same order."""

    def __init__(self, entropy: Entropy, allocated: AllocatedNumbers) -> None:
        self._entropy, self._allocated = entropy, allocated
        self._claims = self._chances = 0

    def new_id(self) -> str:
        return self._entropy.new_id()

    def claim_id(self) -> int:
        self._claims += 1
        if self._claims > len(self._allocated.claims):
            self._allocated.claims.append(self._entropy.claim_id())
        return self._allocated.claims[self._claims - 1]

    def chance(self) -> float:
        self._chances += 1
        if self._chances > len(self._allocated.chances):
            self._allocated.chances.append(self._entropy.chance())
        return self._allocated.chances[self._chances - 1]

    def secret(self) -> str:
        return self._entropy.secret()


class Workspace(Records):
    """The records of one transaction of a database store. Reading a row that was not loaded raises
    NotLoaded."""

    def __init__(
        self, rows: Rows, counters: StoreCounters, allocated: AllocatedNumbers, entropy: Entropy
    ) -> None:
        super().__init__(FrozenClock(counters), ReplayedEntropy(entropy, allocated))
        self.loaded = loaded = LoadedRows(rows)
        self.picks = self._picks_before = counters.picks
        self._allocated, self.seqs = allocated, list[int]()
        self._last_seq, self.fence = counters.seq, 0
        self._next_fence = counters.fence + 1 if allocated.fence is None else allocated.fence
        self.jobs: LoadedTable[str, Job] = LoadedTable(loaded, queries.JobById, _unchanged)
        self.queues: LoadedTable[str, Queue] = LoadedTable(loaded, queries.QueueByName, self._queue_of)
        self.running = LoadedIndex(loaded, queries.WorkerRunningJobs)
        self.successors = LoadedIndex(loaded, queries.JobSuccessors)
        self.unique_holders = LoadedIndex(loaded, lambda at: queries.UniqueHolders(*at))
        self.memory: LoadedTable[str, KnownId] = LoadedTable(loaded, queries.KnownIdByRequest, _unchanged)
        self.arrivals: LoadedTable[int, Arrival] = LoadedTable(loaded, queries.ArrivalBySeq, _unchanged)
        self.checkpoints: LoadedTable[str, dict[StepKey, Checkpoint]] = LoadedTable(
            loaded, queries.JobCheckpoints, _checkpoints_by_step
        )
        self.documents: LoadedTable[tuple[DocumentKind, str], Document] = LoadedTable(
            loaded, lambda at: queries.DocumentById(*at), _unchanged
        )
        self.work_items: list[WorkMark] = []
        self.taken: list[int] = []
        self.workers: LoadedTable[str, KnownWorker] = LoadedTable(loaded, queries.WorkerById, _unchanged)
        self.pool_ledger: LoadedLedger = LoadedLedger(self.clock, self._reopen, loaded, self._next_fence)

    def queue(self, name: str) -> Queue:
        if name not in self.queues:
            self.queues[name] = self._queue_of(name, QueueSettingsRow())
        return self.queues[name]

    def waiting_for(self, account_key: AccountKey) -> Iterable[Queue]:
        """Returns the queues that have lanes waiting for units of that account. Includes queues whose lanes
        this transaction has blocked."""
        names = dict.fromkeys(self.loaded(queries.BlockedQueues(account_key)) or ())
        for name, queue in self.queues.items():
            if isinstance(queue, LoadedQueue) and queue.lanes.has_blocked(account_key):
                names[name] = None
        return [self.queues[name] for name in names]

    def overdue(self, boot: float, dead: frozenset[str]) -> list[Job]:  # noqa: ARG002 - the store has filtered
        return [self.jobs[id_] for id_ in self.loaded(queries.OverdueJobs(tuple(sorted(dead)))) or ()]

    def next_seq(self) -> int:
        """Returns the next sequence number: an allocated one, or a prediction that is checked before the
        commit."""
        at, allocated = len(self.seqs), self._allocated.seqs
        self.seqs.append(allocated[at] if at < len(allocated) else self._last_seq + 1 + at - len(allocated))
        return self.seqs[-1]

    def next_fence(self) -> int:
        self.fence = self._next_fence
        return self.fence

    @property
    def picked(self) -> int:
        return self.picks - self._picks_before

    def mark_work(self, kind: DocumentKind, document: str, job: str = "") -> None:
        """Puts a document on the worklist, if the document exists. `job` is the job that changed; '' if none
        did."""
        self.work_items.append(WorkMark((kind, document), job))
        self.topics[worklist_topic(kind)] = None

    def take_work_marks(self, counters: Iterable[int]) -> None:
        self.taken += counters

    def put_document(self, document: Document) -> None:
        self.documents[document.kind, document.id] = document

    def drop_document(self, document: Document) -> None:
        """Deletes a document. The store deletes its worklist entries together with the row."""
        del self.documents[document.kind, document.id]

    def remember(
        self, request: str, verdict: InsertVerdict, job: str, fence: int = 0, claim: int = 0
    ) -> None:
        self.memory.write(request, KnownId(verdict, job, fence, claim, self.term()))

    def _forget_details(self, job: str) -> None:
        """Does nothing. The store deletes logs, attempts and checkpoints together with the job's row."""

    def _queue_of(self, name: str, row: QueueSettingsRow) -> Queue:
        return LoadedQueue(name, row, self.clock, self.loaded)


def _unchanged(_: Any, row: T) -> T:
    return row


def _checkpoints_by_step(_: str, row: tuple[Checkpoint, ...]) -> dict[StepKey, Checkpoint]:
    return {checkpoint.step: checkpoint for checkpoint in row}
