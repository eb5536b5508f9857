"""The Redis store: implements every contract on one Redis shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from msgspec.structs import replace

from tidemill.clock import Clock, Entropy, SystemEntropy
from tidemill.contract.coordination import Leadership
from tidemill.contract.copy import IdPage, JobCopy, StoreCopy
from tidemill.contract.documents import DocumentPage
from tidemill.contract.documents import check_advances as checked_advances
from tidemill.contract.jobs import Admission, Arrival, ClockReading, ExtendResult, PruneResult, ReclaimResult
from tidemill.contract.pools import PoolMinute, PoolView
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import AttemptRecord, Backlog, JobPage, LogLine, QueueMinute, WorkerInfo
from tidemill.contract.store import ProgressCallback, StoreFacts
from tidemill.core.checkpoints import Checkpoint, StepKey
from tidemill.core.claims import ClaimRequest, ClaimResult, Heartbeat, Settlement, SettleResult
from tidemill.core.documents import Advance, AdvanceResult, Document, DocumentKind, Worklist
from tidemill.core.filters import Filter, check_filter
from tidemill.core.forecast.backlog import Demand
from tidemill.core.jobs import Job, JobGroup
from tidemill.core.operator_changes import AmendResult, OperatorChange
from tidemill.core.queues import InsertResult
from tidemill.core.states import State
from tidemill.engine import queue_changes as engine
from tidemill.engine import read_sets
from tidemill.engine.read_sets import ReadSet
from tidemill.engine.records import Records
from tidemill.engine.store_methods import EngineVerbs
from tidemill.stores.redis import administration, documents, leases, reader
from tidemill.stores.redis.address import parse_url
from tidemill.stores.redis.administration import check
from tidemill.stores.redis.claim import claim
from tidemill.stores.redis.connection import run_without_loop
from tidemill.stores.redis.engine_runner import RedisEngineRunner
from tidemill.stores.redis.handle import RedisHandle
from tidemill.stores.redis.insert import insert
from tidemill.stores.redis.leases import end_previous_boot, extend
from tidemill.stores.redis.prune import prune
from tidemill.stores.redis.settle import settle
from tidemill.stores.redis.shard import (
    MAX_BYTES_PER_SCRIPT,
    MAX_JOBS_PER_TRANSACTION,
    BatchWeight,
    count_fitting,
    split_by_weight,
    weigh_jobs,
)
from tidemill.stores.redis.wakeups import RedisListener


async def amend(
    runner: RedisEngineRunner, job_filter: Filter, change: OperatorChange, limit: int
) -> AmendResult:
    """Applies an operator's change to the jobs that match `job_filter`, oldest first, to at most `limit`
    jobs. Many jobs are split over several transactions."""
    check_filter(job_filter)
    meant = tuple(await reader.oldest_first(runner.shard, job_filter, limit))
    changed: list[str] = []
    unchanged: list[str] = []
    while meant:
        count = await count_fitting(runner.shard, meant)
        some, meant = meant[:count], meant[count:]
        named = replace(job_filter, ids=some)
        found = await runner.run(
            read_sets.amend(some, change), partial(engine.amend, job_filter=named, change=change, limit=limit)
        )
        changed += found.changed
        unchanged += found.unchanged
    return AmendResult(tuple(changed), tuple(unchanged))


T = TypeVar("T")


def _weigh_advance(advance: Advance) -> BatchWeight:
    jobs, size = weigh_jobs(made.job for made in advance.jobs)
    return jobs + 1, size


class RedisBlocking:
    """Synchronous forms of the store methods insert, amend and get, for programs without an event loop.
    Threads never share a connection."""

    def __init__(self, handle: RedisHandle, entropy: Entropy) -> None:
        self._handle, self._entropy = handle, entropy

    def insert(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
        with self._handle.threads.shard() as shard:
            return run_without_loop(insert(RedisEngineRunner(shard, self._entropy), groups))

    def amend(self, job_filter: Filter, change: OperatorChange, limit: int = 1000) -> AmendResult:
        with self._handle.threads.shard() as shard:
            return run_without_loop(amend(RedisEngineRunner(shard, self._entropy), job_filter, change, limit))

    def get(self, ids: Sequence[str]) -> list[Job | None]:
        with self._handle.threads.shard() as shard:
            return run_without_loop(reader.get(shard, ids))


class RedisStore(EngineVerbs):
    """A store on one Redis shard. `prefix`: overrides the prefix in the URL. `clock`: the clock of a test;
    None means the server's clock. `skew`: returns seconds to add to the server's clock, for tests."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        skew: Callable[[], float] | None = None,
    ) -> None:
        self._use(RedisHandle(parse_url(url, prefix), clock, skew), entropy or SystemEntropy())

    def _use(self, handle: RedisHandle, entropy: Entropy) -> None:
        self._handle, self._entropy = handle, entropy
        self.blocking = RedisBlocking(handle, entropy)

    @property
    def _runner(self) -> RedisEngineRunner:
        return RedisEngineRunner(self._handle.shard, self._entropy)

    async def step(self, plan: ReadSet, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:  # noqa: ARG002 - a commit whose reply was lost is never sent again
        return await self._runner.run(plan, verb)

    async def open(self) -> Self:
        await self._handle.open()
        try:
            await end_previous_boot(self._runner)
        except BaseException:
            await self._handle.close()
            raise
        return self

    async def close(self) -> None:
        await self._handle.close()

    def new_handle(self) -> Self:
        other = object.__new__(type(self))
        other._use(self._handle.new_handle(), self._entropy)
        return other

    # -- jobs

    async def insert(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
        return await insert(self._runner, groups)

    async def arrivals(self, limit: int, after: int = 0) -> list[Arrival]:
        return await reader.list_arrivals(self._handle.shard, limit, after)

    async def admit(self, admissions: Sequence[Admission]) -> int:
        admitted = 0
        for some in split_by_weight(
            admissions,
            lambda admission: (1, len(admission.arrival.payload)),
            (MAX_JOBS_PER_TRANSACTION, MAX_BYTES_PER_SCRIPT),
        ):
            admitted += await super().admit(some)
        return admitted

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        return await claim(self._runner, request)

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
        return await settle(self._runner, settlements, request)

    async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
        return await extend(self._runner, heartbeat)

    async def reclaim(self, dead: Sequence[str] = ()) -> ReclaimResult:
        return await leases.reclaim(self._runner, dead)

    async def amend(self, job_filter: Filter, change: OperatorChange, limit: int = 1000) -> AmendResult:
        return await amend(self._runner, job_filter, change, limit)

    async def prune(self, limit: int = 1000) -> PruneResult:
        return await prune(self._runner, limit)

    async def read_clock(self) -> ClockReading:
        return ClockReading(*await self._handle.shard.read_clock())

    # -- documents

    async def advance(self, advances: Sequence[Advance]) -> list[AdvanceResult]:
        checked_advances(advances)  # F5: checks all of them before writing the first
        answers: list[AdvanceResult] = []
        for some in split_by_weight(
            advances, _weigh_advance, (MAX_JOBS_PER_TRANSACTION, MAX_BYTES_PER_SCRIPT)
        ):
            answers += await super().advance(some)
        return answers

    async def worklist(
        self, kind: DocumentKind, limit: int = 100, ids: Sequence[str] | None = None
    ) -> Worklist:
        return await documents.get_worklist(self._handle.shard, kind, limit, ids)

    async def documents(self, kind: DocumentKind, ids: Sequence[str]) -> list[Document | None]:
        return await documents.get_documents(self._handle.shard, kind, ids)

    async def find_documents(
        self,
        kind: DocumentKind,
        *,
        name: str | None = None,
        states: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> DocumentPage:
        return await documents.find_documents(self._handle.shard, kind, name, states, limit, cursor)

    async def document_counts(self, kind: DocumentKind) -> dict[str, int]:
        return await documents.count_documents(self._handle.shard, kind)

    # -- queues

    async def queues(self) -> list[QueueInfo]:
        return await reader.queues(self._handle.shard)

    # -- pools

    async def pools(self) -> list[PoolView]:
        return await reader.pools(self._handle.shard)

    async def pool_history(self, pool: str, since: float) -> list[PoolMinute]:
        return await reader.pool_history(self._handle.shard, pool, since)

    # -- checkpoints

    async def checkpoints(self, job: str) -> list[Checkpoint]:
        return await reader.checkpoints(self._handle.shard, job)

    async def kept_step(self, job: str, step: StepKey) -> bytes | None:
        return await reader.kept_step(self._handle.shard, job, step)

    # -- leaders

    async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Leadership:
        return await leases.lead(self._handle.shard, duties, worker, lease)

    async def resign(self, duties: Sequence[str], worker: str) -> None:
        await leases.resign(self._handle.shard, duties, worker)

    # -- reading

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await reader.get(self._handle.shard, ids)

    async def find(
        self, job_filter: Filter, limit: int = 100, cursor: int | None = None, scan_limit: int | None = None
    ) -> JobPage:
        return await reader.find(self._handle.shard, job_filter, limit, cursor, scan_limit)

    async def counts(self) -> dict[str, dict[State, int]]:
        return await reader.counts(self._handle.shard)

    async def history(self, queue: str, since: float) -> list[QueueMinute]:
        return await reader.history(self._handle.shard, queue, since)

    async def logs(self, job: str) -> list[LogLine]:
        return await reader.logs(self._handle.shard, job)

    async def attempts(self, job: str) -> list[AttemptRecord]:
        return await reader.attempts(self._handle.shard, job)

    async def workers(self) -> list[WorkerInfo]:
        return await reader.workers(self._handle.shard)

    async def backlog(self, queue: str) -> Backlog:
        return await reader.backlog(self._handle.shard, queue)

    async def ahead(self, job: str) -> int | None:
        return await reader.ahead(self._handle.shard, job)

    async def demand(self) -> list[Demand]:
        return await reader.demand(self._handle.shard)

    # -- maintenance

    async def describe(self) -> StoreFacts:
        return await administration.describe(self._handle)

    async def check(self) -> tuple[str, ...]:
        return await check(self._handle.shard)

    async def backup(self, target: Path, progress: ProgressCallback | None = None) -> None:  # noqa: ARG002 - the contract's
        raise administration.refuse_backup(self._handle, target)

    async def compact(self) -> None:
        await administration.compact(self._handle)

    async def copy_jobs(self, after: int = 0, limit: int = 100) -> list[JobCopy]:
        return await administration.copy_jobs(self._handle.shard, after, limit)

    async def copy_ids(self, cursor: str = "") -> IdPage:
        return await administration.copy_ids(self._handle.shard, cursor)

    async def copy_in(self, copies: StoreCopy) -> None:
        await administration.copy_in(self._runner, copies)

    # -- wake-ups

    def listen(self, topics: Iterable[str]) -> RedisListener:
        return self._handle.wakeups.listen(topics)

    def wake(self, topics: Iterable[str]) -> None:
        self._handle.wakeups.wake(topics)
