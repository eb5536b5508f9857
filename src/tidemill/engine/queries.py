"""Row queries: with them, the engine asks a database store for rows.

A query names one row or one list of rows. The answer is None if the row does not exist. A store may also
answer queries that were not asked."""

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
    """A query for one row, or one list of rows. The docstring of each subclass describes the answer."""


class JobById(RowQuery, frozen=True):
    """Asks for a job. The answer is a Job."""

    id: str


class KnownIdByRequest(RowQuery, frozen=True):
    """Asks for the remembered answer to an enqueue request, by the request's id. The answer is a KnownId; it
    may have expired."""

    request: str


class UniqueHolders(RowQuery, frozen=True):
    """Asks for the live and ended jobs that may hold a unique key. The answer is a tuple of job ids, ordered
    by sequence number."""

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
    """Asks how many jobs with this key run in the queue, over all lanes. The answer is an int."""

    queue: str
    key: str


class StateCount(RowQuery, frozen=True):
    """Asks how many jobs of a queue are in a state. The answer is an int."""

    queue: str
    state: State


class QueueByName(RowQuery, frozen=True):
    """Asks for the settings of a queue. The answer is a QueueSettingsRow; None if the store does not know the
    queue."""

    name: str


class LaneByName(RowQuery, frozen=True):
    """Asks for a lane. The answer is a LaneRow, which lists only the first jobs of the lane."""

    queue: str
    lane: str


class OpenLanesOfGroup(RowQuery, frozen=True):
    """Asks for the lanes of a group that are not blocked. The answer is a KeyPrefix: the beginning of a list,
    in the order in which a claim takes the lanes.

    Each entry is a tuple: priority of the first job, number of the last turn, sequence number of the first
    job, lane name."""

    queue: str
    group: str


class ScheduledJobs(RowQuery, frozen=True):
    """Asks for the scheduled jobs of a queue that are due, at most MAX_PROMOTED_PER_CLAIM, and for the next
    one after them.

    The answer is a KeyPrefix of tuples: due time, sequence number, job id."""

    queue: str


class LaneWakeTimes(RowQuery, frozen=True):
    """Asks for the blocked lanes of a queue that may be tried again, and for the next one after them.

    The answer is a KeyPrefix of tuples: the boot-clock time at which the lane is tried again, lane name."""

    queue: str


class BlockedLanes(RowQuery, frozen=True):
    """Asks for the blocked lanes of a queue that wait for units of the account `account_key`. The answer is a
    tuple of lane names."""

    queue: str
    account_key: AccountKey


class BlockedQueues(RowQuery, frozen=True):
    """Asks for the queues in which a lane or a group waits for units of the account `account_key`. The answer
    is a tuple of queue names."""

    account_key: AccountKey


class PoolByName(RowQuery, frozen=True):
    """Asks for a pool. The answer is a PoolRecord (`engine.ledger`)."""

    name: str


class PoolNames(RowQuery, frozen=True):
    """Asks for the names of all declared pools. The answer is a tuple."""


class AccountByKey(RowQuery, frozen=True):
    """Asks for an account; `account_key` is the pair of pool name and key. The answer is an Account."""

    account_key: AccountKey


class PoolAccountKeys(RowQuery, frozen=True):
    """Asks for the accounts of a pool. The answer is a tuple of pairs: pool name and key."""

    pool: str


class ClaimReservations(RowQuery, frozen=True):
    """Asks for the reservations of a claim. The answer is a tuple of HeldReservation, in the order in which
    they were made."""

    claim: ClaimKey


class AccountReservationCount(RowQuery, frozen=True):
    """Asks how many reservations of the account `account_key` have not ended. The answer is an int."""

    account_key: AccountKey


class PoolClaims(RowQuery, frozen=True):
    """Asks for the claims that hold units of a pool. The answer is a tuple of claim keys."""

    pool: str


class AbandonedClaims(RowQuery, frozen=True):
    """Asks for claims of jobs that were cancelled while they ran, if the lease has expired or the worker is
    in `dead`. The answer is a tuple of claim keys."""

    dead: tuple[str, ...]


class UnconfirmedSince(RowQuery, frozen=True):
    """Asks when the units of a claim were counted again, because its worker stopped answering. The answer is
    a wall time; None if this did not happen, or if the claim was settled since."""

    claim: ClaimKey


class OverdueJobs(RowQuery, frozen=True):
    """Asks for running jobs whose lease has expired or whose worker is in `dead`. The answer is a tuple of
    job ids, ordered by sequence number."""

    dead: tuple[str, ...]


class WorkerById(RowQuery, frozen=True):
    """Asks for a worker. The answer is a KnownWorker."""

    id: str


class JobCheckpoints(RowQuery, frozen=True):
    """Asks for the checkpoints of a job. The answer is a tuple of Checkpoint, in the order in which their
    steps first began."""

    job: str


class ArrivalBySeq(RowQuery, frozen=True):
    """Asks for the arrival with this number. The answer is an Arrival."""

    seq: int


class DocumentById(RowQuery, frozen=True):
    """Asks for the document with this kind and id. The answer is a Document."""

    kind: DocumentKind
    id: str


class ClaimPrefetch(RowQuery, frozen=True):
    """Asks for everything that a claim of `limit` jobs from a queue usually reads. The query has no answer of
    its own; the store answers these queries:

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
    """The beginning of a sorted list: `first` has its first entries. `complete=True`: these are all."""

    first: tuple[SortKey, ...] = ()
    complete: bool = True


UNKNOWN_PREFIX = KeyPrefix((), complete=False)


class LaneGroupRow(msgspec.Struct, frozen=True):
    """A group of lanes that need the same pools.

    - `size`: the number of lanes, including blocked ones.
    - `block`: the block of the whole group."""

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

    - `served`: the number of the turn in which a claim last took jobs from the lane.
    - `block`: why the lane is blocked; None if it is open.
    - `missing_jobs`: how many new jobs unblock a lane whose batch waits for more jobs.
    - `batch_due`: the boot-clock time at which the batch has waited long enough.
    - `jobs`: its first jobs, as tuples: priority, due time, sequence number, id."""

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
    """Raised when a store method needs a row that was not loaded.

    - `want`: the query for the row.
    - `count`: how many entries of a sorted list are needed; 0 means the usual number."""

    def __init__(self, want: RowQuery, count: int = 0) -> None:
        super().__init__(want, count)
        self.want, self.count = want, count
