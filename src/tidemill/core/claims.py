"""The requests and answers of claims, heartbeats and settlements, and how a worker shares its slots among
queues."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Self

import msgspec

from tidemill.core.feedback import UsageReport
from tidemill.core.jobs import FlowPosition, Job
from tidemill.core.needs import Need
from tidemill.core.outcomes import Outcome, WriteAnswer
from tidemill.core.states import State

if TYPE_CHECKING:
    from tidemill.core.pool_statistics import PoolChange


class QueueShare(msgspec.Struct, frozen=True):
    """How many `jobs` of one queue a claim takes before it fills its remaining slots from any queue."""

    queue: str
    jobs: int


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's request for jobs.

    - `number`: counts the worker's claims. A repeated request with the same number returns the same jobs.
    - `shares`: how many jobs of each queue are claimed first. Further jobs, up to `limit`, come from the
      queues in the same order.
    - `lease`: the duration of the leases in seconds.
    - `ids`: if given, only these jobs are claimed, and `shares` do not apply."""

    worker: str
    number: int
    shares: tuple[QueueShare, ...]
    limit: int
    lease: float
    ids: tuple[str, ...] | None = None


class ClaimedJob(msgspec.Struct):
    """A claimed job as its worker sees it.

    - `attempt`: the number of this run.
    - `call`: the id of the first job of its shared call, '' without a shared call. The first job holds the
      reservations and alone reports the usage.
    - `deferred_needs`: units reserved for calls that the handler asked for in an earlier attempt (P18)."""

    id: str
    queue: str
    task: str
    payload: bytes
    fence: int
    claim: int
    attempt: int
    priority: int
    lane: str
    crashes: int
    generation: int
    timeout: float | None
    trace: str | None
    created: float
    due: float
    part: str
    needs: tuple[Need, ...] = ()
    call: str = ""
    deferred_needs: tuple[Need, ...] = ()
    flow: FlowPosition | None = None

    @property
    def suspect(self) -> bool:
        """True if the job has a recorded crash. The worker then runs the job in a child process."""
        return self.crashes > 0


class ClaimResult(msgspec.Struct, kw_only=True):
    """The claimed jobs, and facts about the jobs that were not claimed.

    - `more`: True if further jobs could start now.
    - `next_due`: the seconds until another job of these queues may start, None if unknown.
    - `blocked`: for a claim by ids, the jobs that cannot start now.
    - `missing`: for a claim by ids, the jobs that are finished or do not exist.
    - `batch_waits`: True if jobs of a batch task wait for more jobs.
    - `pool_changes`: the changes that the claim made to pools; empty for a repeated claim.
    - `waited`: the seconds from the request until the reserved units count (P20); None for a repeated
      claim."""

    jobs: list[ClaimedJob]
    more: bool = False
    next_due: float | None = None
    blocked: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    batch_waits: bool = False
    pool_changes: tuple[PoolChange, ...] = ()
    waited: float | None = None

    def after(self, waited: float) -> Self:
        """Sets `waited` (see the class) and returns this result. The result of a repeated claim keeps
        `waited=None` (P20)."""
        if self.waited is not None:
            self.waited = max(0.0, waited)
        return self


class Settlement(msgspec.Struct, frozen=True):
    """The outcome of one attempt, as the worker sends it.

    - `spent`: the used units, None for a job without pools.
    - `charged`: the outcome to apply instead of `outcome` if a refusal costs the job an attempt."""

    job: str
    fence: int
    claim: int
    outcome: Outcome
    spent: UsageReport | None = None
    charged: Outcome | None = None


class SettleResult(msgspec.Struct):
    """The store's answer to settlements.

    - `answers`: one answer per settlement, in order.
    - `claims`: the next jobs, if the request asked for jobs.
    - `pool_changes`: the changes that the settlements made to pools."""

    answers: list[WriteAnswer]
    claims: ClaimResult | None = None
    pool_changes: tuple[PoolChange, ...] = ()


class LogEntry(msgspec.Struct, frozen=True):
    """A log line that a handler wrote. `age` is the number of seconds since then. The store calculates the
    time of the line with its own clock."""

    line: str
    age: float = 0.0


class HeldJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the worker still holds, with the progress, note and new log lines of its run. `renew=False`:
    the store must not renew the lease."""

    job: str
    fence: int
    claim: int
    renew: bool = True
    progress: float | None = None
    note: str | None = None
    log: tuple[LogEntry, ...] = ()


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's list of all jobs that it holds.

    - `received`: the number of the last claim whose reply reached the worker.
    - `held`: all running jobs of this and earlier claims. The store makes missing jobs ready again.
    - `lease`: the duration of the renewed leases in seconds."""

    worker: str
    received: int
    lease: float
    held: tuple[HeldJob, ...] = ()
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    concurrency: int = 0


def is_current(job: Job, fence: int, claim: int) -> bool:
    return job.state is State.RUNNING and job.claim == claim and job.fence == fence


def check_fence(job: Job | None, fence: int, claim: int) -> WriteAnswer:
    """Returns the store's answer to a write with this fence and claim id. Only the answer `OK` allows the
    write. `job` is the stored job, None if it does not exist."""
    if job is None:
        return WriteAnswer.GONE
    if job.claim != claim or job.fence != fence:
        return WriteAnswer.STALE
    return WriteAnswer.OK if job.state is State.RUNNING else WriteAnswer.AGAIN


MAX_SINGLE_GRANTS = 64
"""Slots per queue that are divided one by one; a larger claim divides the rest in whole rounds."""


class QueueWeights:
    """Divides a worker's slots among its queues by weight. `strict=True`: queues are served in the given
    order instead."""

    def __init__(self, weights: Mapping[str, int], *, strict: bool = False) -> None:
        self._weights = dict(weights)
        self._strict = strict
        self._passes = dict.fromkeys(self._weights, 0.0)

    def add(self, queue: str) -> None:
        """Adds a queue with weight 1. In strict order the new queue comes last."""
        if queue not in self._weights:
            self._weights[queue] = 1
            self._passes[queue] = max(self._passes.values(), default=0.0)

    def shares(self, slots: int) -> tuple[QueueShare, ...]:
        """Returns how to divide the next `slots` jobs among the queues, as if every queue had enough jobs."""
        if self._strict or len(self._weights) == 1:
            return tuple(QueueShare(queue, slots) for queue in self._weights)
        virtual = [(passed, index, queue) for index, (queue, passed) in enumerate(self._passes.items())]
        heapq.heapify(virtual)
        round_slots = sum(self._weights.values())
        rounds = max(0, slots - MAX_SINGLE_GRANTS * len(virtual)) // round_slots
        granted = dict.fromkeys(self._weights, 0)
        order: list[str] = []
        for _ in range(slots - rounds * round_slots):
            passed, index, queue = virtual[0]
            if not granted[queue]:
                order.append(queue)
            granted[queue] += 1
            heapq.heapreplace(virtual, (passed + 1 / self._weights[queue], index, queue))
        behind = sorted((q for q in self._weights if not granted[q]), key=lambda queue: self._passes[queue])
        return tuple(
            QueueShare(queue, granted[queue] + rounds * self._weights[queue]) for queue in [*order, *behind]
        )

    def served(self, queues: Iterable[str]) -> None:
        """Records the jobs that a claim returned. `queues` has the queue of each job."""
        got = list(queues)
        if not got:
            return
        for queue in got:
            self._passes[queue] += 1 / self._weights[queue]
        floor = min(self._passes[queue] for queue in got)
        for queue, passed in self._passes.items():
            self._passes[queue] = max(passed, floor - 1)
