"""Row queries: the engine asks a database store for rows with them.

A query names one row or one list of rows. The answer is None if there is no such row. With the answer, a
store may send the answers to other queries that usually follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidemill.core.documents import DocumentKind
from tidemill.core.ledger import AccountKey, LaneBlock
from tidemill.core.overrides import Override
from tidemill.core.queues import Pause, QueueChanges, QueueSettings
from tidemill.core.states import State
from tidemill.engine.indexes import SortKey
from tidemill.engine.ledger import ClaimKey


class RowQuery(msgspec.Struct, frozen=True, tag=True):
    """A query for one row, or one list of rows, that a store method reads. The docstring of each subclass
    says what the answer is."""


class JobById(RowQuery, frozen=True):
    """Asks for the Job with that id."""

    id: str


class KnownIdByRequest(RowQuery, frozen=True):
    """Asks what the store remembers (a KnownId) about the id of an enqueue request. The answer may have
    expired."""

    request: str


class UniqueHolders(RowQuery, frozen=True):
    """Asks for the jobs that may hold a unique key: live jobs, and jobs that hold the key for a fixed period,
    even after their end. The answer is a tuple of job ids, ordered by sequence number."""

    queue: str
    key: str


class JobSuccessors(RowQuery, frozen=True):
    """Asks for the jobs that wait for `job` to end. The answer is a tuple of job ids, ordered by sequence
    number."""

    job: str


class WorkerRunningJobs(RowQuery, frozen=True):
    """Asks for the running jobs of a worker. The answer is a tuple of job ids, ordered by sequence number."""

    worker: str


class KeyRunningCount(RowQuery, frozen=True):
    """Asks how many jobs of a key run in the queue, over all lanes. The answer is an int."""

    queue: str
    key: str


class StateCount(RowQuery, frozen=True):
    """Asks how many jobs of a queue are in a state. The answer is an int."""

    queue: str
    state: State


class QueueByName(RowQuery, frozen=True):
    """Asks for the QueueSettingsRow of a queue. The answer is None if the queue was never declared,
    overridden or paused and never had a job."""

    name: str


class LaneByName(RowQuery, frozen=True):
    """Asks for the LaneRow of a lane, which has the sort keys of the lane's first jobs. If a store method
    needs more jobs of the lane, it raises NotLoaded, whose `count` is the number of jobs needed."""

    queue: str
    lane: str


class OpenLanesOfGroup(RowQuery, frozen=True):
    """Asks for the lanes of a group that are not blocked, in the order in which a claim takes them. The
    answer is a KeyPrefix of tuples with four values: the priority of the lane's first job, the lane's last
    turn, the sequence number of the first job, and the lane name."""

    queue: str
    group: str


class ScheduledJobs(RowQuery, frozen=True):
    """Asks for the scheduled jobs of a queue that are due, at most MAX_PROMOTED_PER_CLAIM, and for the first
    scheduled job after them. The answer is a KeyPrefix of tuples (due time, sequence number, id)."""

    queue: str


class LaneWakeTimes(RowQuery, frozen=True):
    """Asks for the blocked lanes of a queue whose waiting time is over, and for the blocked lane whose
    time ends next. The answer is a KeyPrefix of tuples (boot-clock time at which the lane is tried again,
    lane)."""

    queue: str


class BlockedLanes(RowQuery, frozen=True):
    """Asks for the lanes of a queue that are blocked and wait for the account `account_key`. The answer is a
    tuple of lane names."""

    queue: str
    account_key: AccountKey


class BlockedQueues(RowQuery, frozen=True):
    """Asks for the queues with blocked lanes or groups that wait for the account `account_key`. The answer is
    a tuple of queue names."""

    account_key: AccountKey


class PoolByName(RowQuery, frozen=True):
    """Asks for the PoolRecord (`engine.ledger`) of a pool."""

    name: str


class PoolNames(RowQuery, frozen=True):
    """Asks for the names of all declared pools. The answer is a tuple."""


class AccountByKey(RowQuery, frozen=True):
    """Asks for the Account whose pool and key are `account_key`."""

    account_key: AccountKey


class PoolAccountKeys(RowQuery, frozen=True):
    """Asks for the accounts of a pool. The answer is a tuple of account keys."""

    pool: str


class ClaimReservations(RowQuery, frozen=True):
    """Asks for the reservations of a claim. The answer is a tuple of HeldReservation, in the order in which
    they were made."""

    claim: ClaimKey


class AccountReservationCount(RowQuery, frozen=True):
    """Asks how many reservations of the account `account_key` are open. The answer is an int."""

    account_key: AccountKey


class PoolClaims(RowQuery, frozen=True):
    """Asks for the claims that hold units of a pool. The answer is a tuple of claim keys."""

    pool: str


class AbandonedClaims(RowQuery, frozen=True):
    """Asks for abandoned claims (of cancelled jobs) whose lease has expired or whose worker is in `dead`. The
    answer is a tuple of claim keys."""

    dead: tuple[str, ...]


class UnconfirmedSince(RowQuery, frozen=True):
    """Asks when the units of a claim were counted again because its worker stopped answering. The answer is a
    wall time; None if that did not happen, or if the claim was settled since."""

    claim: ClaimKey


class OverdueJobs(RowQuery, frozen=True):
    """Asks for running jobs whose lease has expired or whose worker is in `dead`. The answer is a tuple of
    job ids, ordered by sequence number."""

    dead: tuple[str, ...]


class WorkerById(RowQuery, frozen=True):
    """Asks for the KnownWorker with that id."""

    id: str


class JobCheckpoints(RowQuery, frozen=True):
    """Asks for the checkpoints of a job. The answer is a tuple of Checkpoint, in the order in which their
    steps first began."""

    job: str


class ArrivalBySeq(RowQuery, frozen=True):
    """Asks for the Arrival with that number."""

    seq: int


class DocumentById(RowQuery, frozen=True):
    """Asks for the Document with that kind and id."""

    kind: DocumentKind
    id: str


class ClaimPrefetch(RowQuery, frozen=True):
    """Asks for everything that a claim of `limit` jobs from a queue usually reads. It has no answer of its
    own. The store answers these other queries instead:

    - QueueByName of the queue;
    - ScheduledJobs, with JobById for the due jobs;
    - LaneWakeTimes, with LaneByName for the lanes whose time is over;
    - BlockedLanes for `core.batch_start.BATCH_WAIT_KEY`;
    - the first `lanes` entries of OpenLanesOfGroup for every group, with LaneByName for these lanes;
    - JobById for the first jobs of these lanes: `limit` + 1 jobs of a single lane, max(2, limit // lanes + 1)
      jobs of each of several lanes."""

    queue: str
    limit: int
    lanes: int


class KeyPrefix(msgspec.Struct, frozen=True):
    """The first keys of a sorted list. `complete`: True if the list has no further keys."""

    first: tuple[SortKey, ...] = ()
    complete: bool = True


UNKNOWN_PREFIX = KeyPrefix((), complete=False)


class LaneGroupRow(msgspec.Struct, frozen=True):
    """A group of lanes that need the same pools. `size` is the number of lanes, including blocked ones.
    `block` is the block of the whole group; None if it is not blocked."""

    size: int
    block: LaneBlock | None = None


class QueueSettingsRow(msgspec.Struct, frozen=True):
    """The stored settings of a queue. `groups` are the groups that have lanes or a block, by name."""

    declared: QueueSettings = QueueSettings()
    override: Override[QueueChanges] | None = None
    pause: Pause | None = None
    groups: dict[str, LaneGroupRow] = {}


class LaneRow(msgspec.Struct, frozen=True):
    """The stored state of a lane.

    - `served`: the turn in which a claim last took jobs from the lane.
    - `block`: why the lane is blocked; None if it is open.
    - `missing_jobs`: while a batch waits for more jobs, how many new jobs unblock the lane.
    - `batch_due`: the boot-clock time at which the batch has waited long enough.
    - `jobs`: sort keys (priority, due time, sequence number, id) of its first jobs."""

    served: int
    block: LaneBlock | None = None
    missing_jobs: int = 0
    batch_due: float | None = None
    jobs: KeyPrefix = KeyPrefix()


class StoreCounters(msgspec.Struct, frozen=True):
    """Values of the whole store at the start of a transaction.

    - `wall`, `boot`, `boot_id`: the clocks.
    - `picks`: the number of turns that lanes have had.
    - `seq`, `fence`: the last sequence number and the last fence."""

    wall: float
    boot: float
    boot_id: str
    picks: int
    seq: int
    fence: int


Rows = Mapping[RowQuery, Any]


class NotLoaded(Exception):
    """Raised when a store method needs a row that was not loaded. `want` is the missing query. `count` says
    how many keys of a sorted list are needed; 0 for the usual number."""

    def __init__(self, want: RowQuery, count: int = 0) -> None:
        super().__init__(want, count)
        self.want, self.count = want, count
