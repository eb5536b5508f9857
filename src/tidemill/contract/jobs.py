"""The part of the contract about jobs, checkpoints, and jobs in a caller's database transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

import msgspec

from tidemill.core.checkpoints import Checkpoint, OnUnknown, StepAttempt, StepKey, StepStart
from tidemill.core.claims import ClaimRequest, ClaimResult, Heartbeat, Settlement, SettleResult
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error, JobGroup, NewJob
from tidemill.core.operator_changes import AmendResult, OperatorChange
from tidemill.core.outcomes import WriteAnswer
from tidemill.core.queues import InsertResult

KNOWN_ID_SECONDS = 3600.0
"""Seconds that an id stays known after its job is deleted. Read it as `jobs.KNOWN_ID_SECONDS`, through the
module: `benchmarks.retention` sets a shorter time."""

MAX_PROMOTED_PER_CLAIM = 250
"""The most due jobs of a queue that one claim promotes, so that no claim takes long."""


class ClockReading(msgspec.Struct, frozen=True):
    """The store's clocks in seconds, read at the same moment. `wall` is Unix time. `boot` counts from a start
    of the machine."""

    wall: float
    boot: float


class ExtendResult(msgspec.Struct, frozen=True):
    """The result of a heartbeat.

    - `lost`: ids of listed jobs that the worker no longer holds; the worker must stop their attempts.
    - `returned`: ids of this worker's running jobs that the heartbeat did not list; they are ready again."""

    lost: tuple[str, ...]
    returned: tuple[str, ...] = ()


class ReclaimResult(msgspec.Struct, frozen=True):
    """The ids of the reclaimed jobs.

    - `ready`: jobs that may run again.
    - `poison`: jobs that failed because they reached the crash limit of their queue."""

    ready: tuple[str, ...]
    poison: tuple[str, ...]


class PruneResult(msgspec.Struct, frozen=True):
    """The result of a prune.

    - `pruned`: how many finished jobs and documents were deleted.
    - `expired`: how many expired jobs were cancelled.
    - `more`: True if the caller should prune again soon, because a limit was reached.
    - `early`: for each queue, how many jobs were deleted before their retention age (J84)."""

    pruned: int
    expired: int
    more: bool
    early: dict[str, int] = {}


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A request that another program wrote directly into the store, and that is not a job yet.

    - `seq`: its number among arrivals.
    - `options`: a JSON object with the options of the job.
    - `arrived`: a wall time."""

    seq: int
    id: str
    task: str
    payload: bytes
    options: bytes
    arrived: float


class RejectedArrival(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's decision that an arrival cannot become a job. The store keeps the arrival as a failed job in
    `queue`."""

    queue: str
    error: Error


class Admission(msgspec.Struct, frozen=True):
    """A worker's decision on an arrival. `verdict` is the job that the arrival becomes, or its rejection."""

    arrival: Arrival
    queue: str
    verdict: NewJob | RejectedArrival


class JobStore(Protocol):
    """The methods that move jobs from state to state. Every call is one transaction and uses the store's
    clocks.

    J1  A call that raised a StoreError either changed nothing or was applied. A repeated call is recognised:
        an insert by its job ids, a claim by its number, a settlement by its claim.
    J2  A job is in exactly one state, and changes it only as `core.states.TRANSITIONS` allows.

    A batch task puts several jobs into one provider call; B1 to B10 apply. `core.batching` has the rules.

    B1  Jobs with a `batching` policy have their own lanes. The jobs of such a lane have the same queue, key,
        pools, pool keys, task and part of a split batch (B6). A call takes the first jobs of one lane. The
        policy of the first job applies.
    B2  No call starts before its lane is ready (`core.batching.seconds_until_full`). Until then the lane
        costs claims nothing. `ClaimResult.next_due` includes the lane's waiting time, and
        `ClaimResult.batch_waits` reports it.
    B3  A call takes a lane's first jobs until one of these ends it: the policy's limit
        (`core.batching.max_call_jobs`), a concurrency limit (J35), an expired job, or the pools. If the pools
        admit no job, the lane is blocked (P12).
    B4  A call takes one reservation from each pool (`core.batching.call_needs`). The reservation belongs to
        the first job of the call (P13, P14). The other jobs hold no units.
    B5  A call counts as one towards a claim's `limit` and a queue's share. Its jobs are neighbours in the
        result, and each names the first job (`ClaimedJob.call`). A repeated claim (J33) keeps calls together.
    B6  A job settled as `SmallerBatch` belongs to one part of its split batch until an operator retries it.
        The job keeps its position, no attempt is counted, and the lane of its part is ready at once.
    B7  If a worker dies during a call, the jobs of the call are divided into two halves. A job with a
        recorded crash makes its lane ready at once and shares a call only with its half. A job that crashed
        alone shares no call.
    B8  A job claimed by its id (J37) is a call by itself, and its lane need not be ready.
    B9  Setting the wall clock makes no lane wait longer than `linger` seconds from the first claim that could
        have taken its jobs (I26).
    B10 The needs of an inserted job are checked (P10) as if the job were alone in its call."""

    async def insert(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
        """Inserts groups of jobs. Returns, for each group, one result per job, in order.

        J10 A group is accepted or refused as a whole. Groups do not affect each other.
        J11 Inserting an id again returns its first answer. This holds while the job exists, and for
            KNOWN_ID_SECONDS after it is deleted.
        J12 FULL: the queue's pending jobs plus the group's new jobs would exceed `max_length`. The limit
            holds under concurrency.
        J13 INVALID: `core.jobs.problem_with_group` found a problem; the result has its text.
        J14 If another job holds the unique key, `core.unique_keys.resolve_conflict` decides, also within one
            group. A pending holder that has expired is cancelled first.
        J15 An accepted job survives every failure that the store promises to survive.
        J16 A job due in the future is `scheduled` and never starts before that time."""
        ...

    async def arrivals(self, limit: int, after: int = 0) -> list[Arrival]:
        """Returns up to `limit` arrivals that wait to be admitted, oldest first. `after`: only arrivals with
        a larger `Arrival.seq`."""
        ...

    async def admit(self, admissions: Sequence[Admission]) -> int:
        """Turns arrivals into jobs and deletes the arrivals, in one transaction. Returns how many arrivals
        were deleted.

        J20 An arrival is admitted once, even if several workers try it several times.
        J21 A rejected arrival becomes a failed job with the error of its rejection. If the store finds a
            problem, the failed job keeps its key, priority, timeout, trace and tags. Length limits do not
            apply."""
        ...

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """Claims up to `limit` jobs for a worker and returns them. A batch call counts as one.

        J30 First, due jobs of the queues are promoted, at most MAX_PROMOTED_PER_CLAIM per queue, in order of
            their due time.
        J31 `core.lane_selection.select_jobs` decides the order of lanes. Inside a lane the order is priority,
            due time, sequence number.
        J32 All jobs of a claim get the same fence. Fences only grow. The claim id is random.
        J33 A claim number that is not above the worker's last number is a repetition. The store returns the
            jobs of that claim that the worker still holds, and claims no new job.
        J34 No job of a paused queue is claimed. A pause with an end ends by itself.
        J35 Running jobs of a queue never exceed `concurrency`. Running jobs of a key never exceed
            `key_concurrency`.
        J36 An expired job is cancelled ("expired") instead of claimed, at most
            `core.lane_selection.MAX_EXPIRED_PER_CLAIM` per claim.
        J37 If the request has `ids`, each of these jobs is claimed or reported. Blocked: not ready, paused,
            or at a limit. Missing: finished or deleted.
        J38 `next_due` is the number of seconds until the next scheduled job is due, or until a pause or an
            override ends. `more` is True if claimable jobs were left.
        J39 Each queue first gets its share of `limit`, in the order of the request. The part of `limit` that
            is left goes to the queues in the same order. A store may return fewer jobs than it could; then
            `more` is True."""
        ...

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
        """Records the outcomes of attempts. If `request` is given, also claims the next jobs in the same
        transaction.

        J40 Each settlement gets one answer: OK (or CHARGED, P17), AGAIN (settled before), STALE (an older
            claim) or GONE (`core.claims.check_fence`). Only OK and CHARGED change the job. No answer stops
            the next settlements. If a deleted job's claim is still remembered, the answer is AGAIN.
        J41 `core.transitions.settle_job` decides the job's new state.
        J42 A job that ends releases its waiting successor. If a successor waits, a job is cancelled
            ("superseded") instead of retried.
        J43 A job that is given back keeps its sequence number, and so its position in its lane."""
        ...

    async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
        """Applies a worker's heartbeat: renews leases and stores progress, notes and log lines.

        J50 If a listed claim is current, its progress, note and log lines are stored. Its lease is renewed if
            the worker asks for that. The time of a log line is the store's time minus the line's age.
        J51 A listed claim that is not current is reported as lost and changes nothing.
        J52 A running job of this worker that is not listed becomes ready again, and no attempt is counted.
            This applies only if the worker got the reply of that claim: the claim number is at most
            `received`.
        J53 `StoreReader.workers` lists the worker until its lease expires."""
        ...

    async def reclaim(self, dead: Sequence[str] = ()) -> ReclaimResult:
        """Takes back running jobs whose lease has expired, and all jobs of the workers in `dead`.

        J60 A job with a valid lease is not touched, unless its worker is in `dead`.
        J61 `core.transitions.reclaim_job` decides the job's new state. If the job ran alone, its crash count
            grows by 1. If it ran with other jobs, its crash count becomes at least 1, and it runs alone next,
            or with its half (B7).
        J62 Every later write of the old claim is refused.
        J63 Leases from before a restart of the machine count as expired."""
        ...

    async def amend(self, job_filter: Filter, change: OperatorChange, limit: int = 1000) -> AmendResult:
        """Applies an operator's change to at most `limit` jobs that match `job_filter`, oldest first.

        J70 `core.operator_changes` says to which jobs a change applies and what it does to them.
            `core.filters.matches_filter` says which jobs match. An invalid filter raises ConfigurationError.
        J71 After `amend` has cancelled a job, no new attempt of the job starts, and writes of its holder are
            refused.
        J72 Ending a job releases its waiting successor.
        J73 The id of a deleted job is remembered, as for any deleted job."""
        ...

    async def prune(self, limit: int = 1000) -> PruneResult:
        """Deletes finished jobs by their queue's retention, cancels expired jobs, and forgets old remembered
        ids.

        Each of the three handles at most `limit` rows.

        J80 Jobs that finished first are deleted first. Age and number are limited per queue and state.
        J81 A job whose unique key is held for a period is kept until the period is over.
        J82 The id of a deleted job is remembered for KNOWN_ID_SECONDS on both clocks. A prune examines the
            `limit` ids that expired first by the wall clock, at equal times in the order of the ids.
        J83 A queue's retention does not apply to a job of a flow. The job is deleted when the flow's `until`
            has passed; then the flow is deleted. `pruned` counts both.
        J84 If a queue has too many finished jobs, some are deleted before their retention age. `early` and
            the queue's `dropped_early` count them."""
        ...

    async def read_clock(self) -> ClockReading:
        """Returns the current time of the store's clocks."""
        ...


class CheckpointStore(Protocol):
    """The methods that store the results of steps inside a handler. `core.checkpoints` has the rules.

    `by` names one call of a step: the claim that makes the call, and the number of the call, from 1.

    K1  A checkpoint that a method has confirmed survives every failure that the store promises to survive.
    K2  Checkpoints live as long as their job. An operator's retry keeps results and deletes checkpoints
        without a result."""

    async def begin_step(
        self, job: str, by: StepAttempt, step: StepKey, on_unknown: OnUnknown = "retry"
    ) -> StepStart:
        """Records that a paid step is about to make its call. Returns whether the call may be made, or the
        stored result.

        `on_unknown` decides if an earlier call began and has no result; that call may have been paid.

        K3  A stored result is answered with KEPT. After an earlier call without a result, "park" answers
            UNKNOWN and changes nothing; "retry" begins the step again, counts the earlier call as unknown,
            and answers FRESH. A step that has not begun begins now: FRESH. Repeating the same call after a
            lost reply answers FRESH again. If the claim is not current, the answer is STALE and nothing
            changes."""
        ...

    async def forget_step(self, job: str, by: StepAttempt, step: StepKey) -> None:
        """Deletes the record that a step has begun, because its call was certainly not paid.

        K4  If an earlier call of the step may have been paid, the record stays, but no longer names this
            call. A stored result and the record of another call stay unchanged."""
        ...

    async def keep_step(
        self, job: str, by: StepAttempt, step: StepKey, result: bytes, *, paid: bool
    ) -> tuple[WriteAnswer, bytes]:
        """Stores a step's result. Returns the answer and the stored result. The first result wins.

        `paid=True`: the step makes a paid call.

        K5  OK: this result was stored. AGAIN: a result was stored before. GONE: the job does not exist. The
            result of a paid step is stored even if the claim is no longer current or the job has ended (I6).
            The result of an unpaid step is stored only by the current claim; otherwise the answer is STALE
            with the given result."""
        ...

    async def checkpoints(self, job: str) -> list[Checkpoint]:
        """Returns the checkpoints of a job.

        K6  They are in the order in which their steps first began."""
        ...

    async def kept_step(self, job: str, step: StepKey) -> bytes | None:
        """Returns the stored result of one step as JSON.

        K7  None if the step has no result."""
        ...


class SettlingTransaction(msgspec.Struct):
    """An open database transaction that also settles a job.

    - `connection`: the connection object of the database library.
    - `settlement`: set by the caller before the block ends; with None no job is settled."""

    connection: Any
    settlement: Settlement | None = None


@runtime_checkable
class TransactionalStore(Protocol):
    """A store that can enqueue and settle jobs inside a database transaction.

    X1  A request written inside a caller's transaction becomes an arrival when that transaction commits.
        After a rollback it never existed. The request shares no lock with other jobs.
    X2  An arrival sends a wake-up to ARRIVALS_TOPIC.
    X3  A connection that the store cannot write through raises ConfigurationError; the message says what to
        pass instead."""

    async def send_in_transaction(
        self, connection: object, job: str, task: str, payload: bytes, options: bytes
    ) -> None:
        """Writes an enqueue request through the caller's async connection or session.

        The request becomes a job after the caller's commit. `job` is the id of the job. `payload` is JSON,
        and `options` is a JSON object."""
        ...

    def send_in_transaction_sync(
        self, connection: object, job: str, task: str, payload: bytes, options: bytes
    ) -> None:
        """Writes an enqueue request through the caller's sync connection or session, in the caller's thread.
        The request becomes a job after the caller's commit."""
        ...

    def transaction(
        self, job: str, fence: int, claim: int
    ) -> AbstractAsyncContextManager[SettlingTransaction]:
        """Opens a transaction of the store for the holder of a claim. Use the result in an `async with`
        block.

        X4  A claim that is not current raises ClaimLost. At the end of the block the settlement commits
            together with everything else written on the connection. If the block raises, or the claim was
            lost meanwhile (ClaimLost), nothing is written. A later settlement of the same claim is answered
            AGAIN (J40)."""
        ...
