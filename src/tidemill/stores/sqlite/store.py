"""The SQLite store: implements every contract on one file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from msgspec import UNSET, UnsetType

from tidemill.clock import Clock, Entropy, SystemClock, SystemEntropy
from tidemill.contract.coordination import Leadership, WakeupListener, queue_topic
from tidemill.contract.copy import IdPage, JobCopy, StoreCopy
from tidemill.contract.documents import DocumentPage
from tidemill.contract.jobs import Admission, Arrival, ClockReading, ExtendResult, PruneResult, ReclaimResult
from tidemill.contract.pools import PoolMinute, PoolView
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import AttemptRecord, Backlog, JobPage, LogLine, QueueMinute, WorkerInfo
from tidemill.contract.store import ProgressCallback, StoreFacts
from tidemill.core.checkpoints import Checkpoint, OnUnknown, StepAttempt, StepKey, StepStart
from tidemill.core.claims import ClaimRequest, ClaimResult, Heartbeat, Settlement, SettleResult
from tidemill.core.documents import Advance, AdvanceResult, Document, DocumentKind, Worklist
from tidemill.core.feedback import Observation
from tidemill.core.filters import Filter
from tidemill.core.forecast.backlog import Demand
from tidemill.core.jobs import Job, JobGroup
from tidemill.core.late_calls import Departure
from tidemill.core.needs import Need
from tidemill.core.operator_changes import AmendResult, OperatorChange
from tidemill.core.outcomes import WriteAnswer
from tidemill.core.overrides import clear_override, join_override
from tidemill.core.pool_statistics import PoolChange
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.queues import InsertResult, QueueChanges, QueueSettings
from tidemill.core.states import State
from tidemill.store_url import DEFAULT_FILE_MODE
from tidemill.stores.sqlite import administration, documents, insert_inbox, leases, queues, reader
from tidemill.stores.sqlite import checkpoints as steps
from tidemill.stores.sqlite import pools as sqlite_pools
from tidemill.stores.sqlite.claim import claim
from tidemill.stores.sqlite.connection import ReadConnection
from tidemill.stores.sqlite.documents import advance
from tidemill.stores.sqlite.file import DatabaseFile
from tidemill.stores.sqlite.find import amend
from tidemill.stores.sqlite.insert import admit, insert, list_arrivals
from tidemill.stores.sqlite.leases import extend, reclaim
from tidemill.stores.sqlite.prune import prune
from tidemill.stores.sqlite.settle import settle
from tidemill.stores.sqlite.sync_methods import SqliteBlocking
from tidemill.stores.sqlite.transaction import SqliteTransaction
from tidemill.stores.sqlite.wakeups import SqliteWakeups
from tidemill.stores.sqlite.writer import SqliteWriter


class SqliteStore:
    """A store in one SQLite file. `mode`: the permissions of the files that the store creates.

    A durable transaction waits for the disk before it is answered. Heartbeats, leadership, pruning and claims
    that reserve no units are not durable. A power cut may undo the last of these transactions. This does no
    harm, because the power cut also stops all workers."""

    def __init__(
        self,
        path: str | Path,
        *,
        mode: int = DEFAULT_FILE_MODE,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        self.path = Path(path)
        self._file, self._owns_file = DatabaseFile(self.path, mode), True
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._share(SqliteWakeups(self.path, self._entropy, mode))

    async def open(self) -> Self:
        await asyncio.to_thread(self._writer.open)
        for connection in (self._reads, self._searches, self._maintenance_reads):
            connection.open()
        return self

    async def close(self) -> None:
        await asyncio.to_thread(self._writer.close)
        for connection in (self._reads, self._searches, self._maintenance_reads):
            await asyncio.to_thread(connection.close)
        if self._owns_file:
            self._file.forget()

    def new_handle(self) -> SqliteStore:
        """Returns another SqliteStore object on the same file, for another thread. The two objects share
        their wake-ups."""
        other = SqliteStore(self.path, clock=self._clock, entropy=self._entropy)
        other._file, other._owns_file = self._file, False
        other._share(self._wakeups)
        return other

    def _share(self, wakeups: SqliteWakeups) -> None:
        self._wakeups = wakeups
        self._writer = SqliteWriter(self._file, self._clock, wakeups)
        self._reads = ReadConnection(self._file, self._clock, self._file_inbox)
        # Reading one job must not wait for a search, nor a search for a copy of the whole store.
        self._searches = ReadConnection(self._file, self._clock, self._file_inbox)
        self._maintenance_reads = ReadConnection(self._file, self._clock, self._file_inbox)
        self.blocking = SqliteBlocking(self._writer, self._reads, wakeups)

    def _file_inbox(self) -> None:
        self._writer.run(lambda _: None, durable=False)

    # -- jobs

    async def insert(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
        def append_or_insert(transaction: SqliteTransaction) -> list[list[InsertResult]]:
            appended = insert_inbox.append_job(transaction.connection, transaction.now, groups)
            if appended is None or insert_inbox.is_full(transaction.connection):
                insert_inbox.move_to_jobs(transaction)
            if appended is None:
                return insert(transaction, groups)
            transaction.topics.add(queue_topic(groups[0].queue))
            return appended

        return await self._writer.submit(append_or_insert, durable=True, files_inbox=False)

    async def arrivals(self, limit: int, after: int = 0) -> list[Arrival]:
        return await self._reads.run(lambda transaction: list_arrivals(transaction, limit, after))

    async def admit(self, admissions: Sequence[Admission]) -> int:
        return await self._writer.submit(lambda transaction: admit(transaction, admissions), durable=True)

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        began = self._clock.boot()
        return await self._writer.submit(
            lambda transaction: self._claim(transaction, request, began), durable=False
        )

    def _claim(self, transaction: SqliteTransaction, request: ClaimRequest, began: float) -> ClaimResult:
        """Claims jobs. The result also has the seconds that the claim waited since `began` (P20)."""
        return claim(transaction, request, self._entropy.claim_id).after(transaction.boot - began)

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
        began = self._clock.boot()

        def settle_and_claim(transaction: SqliteTransaction) -> SettleResult:
            answers = settle(transaction, settlements, self._entropy.chance)
            transaction.refresh_lanes()
            pool_changes = transaction.take_pool_changes()
            claims = None if request is None else self._claim(transaction, request, began)
            return SettleResult(answers, claims, pool_changes)

        return await self._writer.submit(settle_and_claim, durable=bool(settlements))

    async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
        return await self._writer.submit(lambda transaction: extend(transaction, heartbeat), durable=False)

    async def reclaim(self, dead: Sequence[str] = ()) -> ReclaimResult:
        return await self._writer.submit(lambda transaction: reclaim(transaction, dead), durable=True)

    async def amend(self, job_filter: Filter, change: OperatorChange, limit: int = 1000) -> AmendResult:
        return await self._writer.submit(
            lambda transaction: amend(transaction, job_filter, change, limit), durable=True
        )

    async def prune(self, limit: int = 1000) -> PruneResult:
        return await self._writer.submit(lambda transaction: prune(transaction, limit), durable=False)

    async def read_clock(self) -> ClockReading:
        self._file.check()  # readiness asks for the clock
        return ClockReading(self._clock.wall(), self._clock.boot())

    # -- queues

    async def declare(self, settings: Mapping[str, QueueSettings]) -> None:
        await self._writer.submit(partial(queues.declare_queues, queues=settings), durable=True)

    async def override(
        self,
        queue: str,
        changes: QueueChanges,
        *,
        by: str,
        reason: str | None = None,
        until: float | UnsetType | None = UNSET,
    ) -> None:
        edit = join_override(changes, by=by, reason=reason, until=until)
        await self._writer.submit(partial(queues.override_queue, queue=queue, edit=edit), durable=True)

    async def clear_override(self, queue: str, names: Sequence[str] = ()) -> None:
        edit = clear_override(names)
        await self._writer.submit(partial(queues.override_queue, queue=queue, edit=edit), durable=True)

    async def pause(self, queue: str, *, until: float | None = None, reason: str | None = None) -> None:
        await self._writer.submit(
            lambda transaction: queues.pause_queue(transaction, queue, until, reason), durable=True
        )

    async def resume(self, queue: str) -> None:
        await self._writer.submit(lambda transaction: queues.resume_queue(transaction, queue), durable=True)

    async def queues(self) -> list[QueueInfo]:
        return await self._reads.run(queues.list_queues)

    # -- pools

    async def declare_pools(self, pools: Mapping[str, PoolSettings]) -> None:
        await self._writer.submit(partial(sqlite_pools.declare_pools, pools=pools), durable=True)

    async def override_pool(
        self,
        pool: str,
        changes: LimitChanges,
        *,
        key: str | None = None,
        by: str,
        reason: str | None = None,
        until: float | UnsetType | None = UNSET,
    ) -> None:
        edit = join_override(changes, by=by, reason=reason, until=until)
        override = partial(sqlite_pools.override_pool, account_key=(pool, key), edit=edit)
        await self._writer.submit(override, durable=True)

    async def clear_pool_override(
        self, pool: str, names: Sequence[str] = (), *, key: str | None = None
    ) -> None:
        override = partial(sqlite_pools.override_pool, account_key=(pool, key), edit=clear_override(names))
        await self._writer.submit(override, durable=True)

    async def reserve(
        self, job: str, fence: int, claim: int, need: Need, departure: Departure | None = None
    ) -> float | None:
        return await self._writer.submit(
            lambda transaction: sqlite_pools.reserve(transaction, job, fence, claim, need, departure),
            durable=True,
        )

    async def observe(self, observations: Sequence[Observation]) -> tuple[PoolChange, ...]:
        return await self._writer.submit(
            lambda transaction: sqlite_pools.observe(transaction, observations, self._entropy.chance),
            durable=True,
        )

    async def close_pool(
        self,
        pool: str,
        *,
        key: str | None = None,
        until: float | None = None,
        by: str,
        reason: str | None = None,
    ) -> None:
        close = partial(sqlite_pools.close_pool, account=(pool, key), until=until, by=by, reason=reason)
        await self._writer.submit(close, durable=True)

    async def open_pool(self, pool: str, *, key: str | None = None) -> None:
        await self._writer.submit(
            lambda transaction: sqlite_pools.open_pool(transaction, (pool, key)), durable=True
        )

    async def pools(self) -> list[PoolView]:
        return await self._reads.run(sqlite_pools.list_pools)

    async def pool_history(self, pool: str, since: float) -> list[PoolMinute]:
        return await self._reads.run(lambda transaction: sqlite_pools.pool_history(transaction, pool, since))

    # -- checkpoints

    async def begin_step(
        self, job: str, by: StepAttempt, step: StepKey, on_unknown: OnUnknown = "retry"
    ) -> StepStart:
        return await self._writer.submit(
            lambda transaction: steps.begin_step(transaction, job, by, step, on_unknown), durable=True
        )

    async def forget_step(self, job: str, by: StepAttempt, step: StepKey) -> None:
        await self._writer.submit(
            lambda transaction: steps.forget_step(transaction, job, by, step), durable=True
        )

    async def keep_step(
        self, job: str, by: StepAttempt, step: StepKey, result: bytes, *, paid: bool
    ) -> tuple[WriteAnswer, bytes]:
        return await self._writer.submit(
            lambda transaction: steps.keep_step(transaction, job, by, step, result, paid=paid), durable=True
        )

    async def checkpoints(self, job: str) -> list[Checkpoint]:
        return await self._reads.run(lambda transaction: steps.list_checkpoints(transaction, job))

    async def kept_step(self, job: str, step: StepKey) -> bytes | None:
        return await self._reads.run(lambda transaction: steps.get_result(transaction, job, step))

    # -- documents

    async def advance(self, advances: Sequence[Advance]) -> list[AdvanceResult]:
        return await self._writer.submit(lambda transaction: advance(transaction, advances), durable=True)

    async def worklist(
        self, kind: DocumentKind, limit: int = 100, ids: Sequence[str] | None = None
    ) -> Worklist:
        return await self._reads.run(
            lambda transaction: documents.get_worklist(transaction, kind, limit, ids)
        )

    async def documents(self, kind: DocumentKind, ids: Sequence[str]) -> list[Document | None]:
        return await self._reads.run(lambda transaction: documents.get_documents(transaction, kind, ids))

    async def find_documents(
        self,
        kind: DocumentKind,
        *,
        name: str | None = None,
        states: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> DocumentPage:
        return await self._searches.run(
            lambda transaction: documents.find_documents(transaction, kind, name, states, limit, cursor)
        )

    async def document_counts(self, kind: DocumentKind) -> dict[str, int]:
        return await self._reads.run(lambda transaction: documents.count_documents(transaction, kind))

    # -- reader

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await self._reads.run(lambda transaction: reader.get(transaction, ids))

    async def find(
        self, job_filter: Filter, limit: int = 100, cursor: int | None = None, scan_limit: int | None = None
    ) -> JobPage:
        return await self._searches.run(
            lambda transaction: reader.find(transaction, job_filter, limit, cursor, scan_limit)
        )

    async def counts(self) -> dict[str, dict[State, int]]:
        return await self._reads.run(reader.counts)

    async def history(self, queue: str, since: float) -> list[QueueMinute]:
        return await self._reads.run(lambda transaction: reader.history(transaction, queue, since))

    async def logs(self, job: str) -> list[LogLine]:
        return await self._reads.run(lambda transaction: reader.logs(transaction, job))

    async def attempts(self, job: str) -> list[AttemptRecord]:
        return await self._reads.run(lambda transaction: reader.attempts(transaction, job))

    async def workers(self) -> list[WorkerInfo]:
        return await self._reads.run(reader.workers)

    async def backlog(self, queue: str) -> Backlog:
        return await self._reads.run(lambda transaction: reader.backlog(transaction, queue))

    async def ahead(self, job: str) -> int | None:
        return await self._reads.run(lambda transaction: reader.ahead(transaction, job))

    async def demand(self) -> list[Demand]:
        return await self._reads.run(reader.demand)

    # -- coordinator

    async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Leadership:
        return await self._writer.submit(
            lambda transaction: leases.lead(transaction, duties, worker, lease), durable=False
        )

    async def resign(self, duties: Sequence[str], worker: str) -> None:
        await self._writer.submit(
            lambda transaction: leases.resign(transaction, duties, worker), durable=False
        )

    # -- upkeep

    async def describe(self) -> StoreFacts:
        return await self._reads.run(lambda transaction: administration.describe(transaction, self._file))

    async def check(self) -> tuple[str, ...]:
        return await self._maintenance_reads.run(administration.check)

    async def backup(self, target: Path, progress: ProgressCallback | None = None) -> None:
        await self._maintenance_reads.run(
            lambda transaction: administration.back_up(transaction.connection, target, progress)
        )

    async def compact(self) -> None:
        await asyncio.to_thread(self._writer.run_alone, administration.compact)

    # -- copy to another store

    async def copy_jobs(self, after: int = 0, limit: int = 100) -> list[JobCopy]:
        return await self._maintenance_reads.run(
            lambda transaction: administration.copy_jobs(transaction, after, limit)
        )

    async def copy_ids(self, cursor: str = "") -> IdPage:
        return await self._maintenance_reads.run(
            lambda transaction: administration.copy_ids(transaction, cursor)
        )

    async def copy_in(self, copies: StoreCopy) -> None:
        await self._writer.submit(partial(administration.copy_in, copies=copies), durable=True)

    # -- wake-ups

    def listen(self, topics: Iterable[str]) -> WakeupListener:
        return self._wakeups.listen(topics)

    def wake(self, topics: Iterable[str]) -> None:
        self._wakeups.wake(topics)
