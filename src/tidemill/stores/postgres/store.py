"""The PostgreSQL store: implements every contract in one schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from msgspec.structs import replace

from tidemill.clock import Clock, Entropy, SystemEntropy
from tidemill.contract.coordination import Leadership
from tidemill.contract.copy import IdPage, JobCopy, StoreCopy
from tidemill.contract.documents import DocumentPage
from tidemill.contract.jobs import (
    Arrival,
    ClockReading,
    ExtendResult,
    PruneResult,
    ReclaimResult,
    SettlingTransaction,
)
from tidemill.contract.pools import PoolMinute, PoolView
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import AttemptRecord, Backlog, JobPage, LogLine, QueueMinute, WorkerInfo
from tidemill.contract.store import ProgressCallback, StoreFacts
from tidemill.core.checkpoints import Checkpoint, StepKey
from tidemill.core.claims import ClaimRequest, ClaimResult, Heartbeat, Settlement, SettleResult
from tidemill.core.documents import Document, DocumentKind, Worklist
from tidemill.core.filters import Filter
from tidemill.core.forecast.backlog import Demand
from tidemill.core.jobs import Job, JobGroup
from tidemill.core.operator_changes import AmendResult, OperatorChange
from tidemill.core.queues import InsertResult
from tidemill.core.states import State
from tidemill.engine import queue_changes, read_sets
from tidemill.engine.read_sets import ReadSet
from tidemill.engine.records import Records
from tidemill.engine.store_methods import EngineVerbs
from tidemill.stores.postgres import administration, documents, pools, reader, user_transactions
from tidemill.stores.postgres.address import PostgresAddress
from tidemill.stores.postgres.administration import TableVacuum
from tidemill.stores.postgres.claim import claim
from tidemill.stores.postgres.connection import PostgresConnection
from tidemill.stores.postgres.engine_runner import PostgresEngineRunner
from tidemill.stores.postgres.insert import insert
from tidemill.stores.postgres.leases import end_previous_boot, extend, lead, reclaim, resign
from tidemill.stores.postgres.prune import prune
from tidemill.stores.postgres.settle import settle, settle_in_transaction
from tidemill.stores.postgres.statements import load_statements
from tidemill.stores.postgres.wakeups import PostgresListener

CLOCK = load_statements("clock")


T = TypeVar("T")


class PostgresStore(EngineVerbs):
    """A store in one schema of a PostgreSQL database. `schema`: overrides the schema in the URL. `clock`: the
    clock of a test; None means the server's clock."""

    blocking = None

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        self._address, self._clock = PostgresAddress.parse(url, schema), clock
        self._entropy = entropy or SystemEntropy()
        self._connect()

    def _connect(self) -> None:
        self._connection = PostgresConnection(self._address, self._clock)
        self._runner = PostgresEngineRunner(self._connection, self._entropy)
        self._table_vacuum = TableVacuum(self._connection)

    @property
    def address(self) -> PostgresAddress:
        return self._address

    async def open(self) -> Self:
        await self._connection.open()
        if self._clock is not None:
            await end_previous_boot(self._runner)
        return self

    async def is_created(self) -> bool:
        return await self._connection.is_created()

    async def close(self) -> None:
        await self._connection.close()

    def new_handle(self) -> Self:
        other = object.__new__(type(self))
        other._address, other._clock, other._entropy = self._address, self._clock, self._entropy
        other._connect()
        return other

    async def step(self, plan: ReadSet, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:
        return await self._runner.run(plan, verb, repeatable=repeatable)

    # -- jobs

    async def insert(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
        return await insert(self._runner, groups)

    async def arrivals(self, limit: int, after: int = 0) -> list[Arrival]:
        return await reader.arrivals(self._connection, limit, after)

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        return await claim(self._runner, request)

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
        return await settle(self._runner, settlements, request)

    async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
        return await extend(self._runner, heartbeat)

    async def reclaim(self, dead: Sequence[str] = ()) -> ReclaimResult:
        return await reclaim(self._runner, dead)

    async def amend(self, job_filter: Filter, change: OperatorChange, limit: int = 1000) -> AmendResult:
        """Applies an operator's change to up to `limit` jobs that match `job_filter`, in one transaction."""
        found = await reader.oldest_first(self._connection, job_filter, limit)
        if not found:
            return AmendResult((), ())
        named = replace(job_filter, ids=found)
        return await self._runner.run(
            read_sets.amend(found, change),
            lambda records: queue_changes.amend(records, named, change, limit),
            repeatable=False,
        )

    async def prune(self, limit: int = 1000) -> PruneResult:
        return await prune(self._runner, limit)

    async def read_clock(self) -> ClockReading:
        (row,) = await self._connection.fetch(CLOCK.read_clock, *self._connection.clock.arguments())
        return self._connection.clock.update(row["wall"], row["boot"], row["epoch"])

    # -- queues

    async def queues(self) -> list[QueueInfo]:
        return await reader.queues(self._connection)

    # -- pools

    async def pools(self) -> list[PoolView]:
        return await pools.list_pools(self._connection, self._entropy)

    async def pool_history(self, pool: str, since: float) -> list[PoolMinute]:
        return await pools.pool_history(self._connection, pool, since)

    # -- documents

    async def worklist(
        self, kind: DocumentKind, limit: int = 100, ids: Sequence[str] | None = None
    ) -> Worklist:
        return await documents.get_worklist(self._connection, kind, limit, ids)

    async def documents(self, kind: DocumentKind, ids: Sequence[str]) -> list[Document | None]:
        return await documents.get_documents(self._connection, kind, ids)

    async def find_documents(
        self,
        kind: DocumentKind,
        *,
        name: str | None = None,
        states: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> DocumentPage:
        return await documents.find_documents(self._connection, kind, name, states, limit, cursor)

    async def document_counts(self, kind: DocumentKind) -> dict[str, int]:
        return await documents.count_documents(self._connection, kind)

    # -- checkpoints

    async def checkpoints(self, job: str) -> list[Checkpoint]:
        return await reader.checkpoints(self._connection, job)

    async def kept_step(self, job: str, step: StepKey) -> bytes | None:
        return await reader.kept_step(self._connection, job, step)

    # -- leadership

    async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Leadership:
        return await lead(self._runner, duties, worker, lease)

    async def resign(self, duties: Sequence[str], worker: str) -> None:
        await resign(self._runner, duties, worker)

    # -- reader

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await reader.get(self._connection, ids)

    async def find(
        self, job_filter: Filter, limit: int = 100, cursor: int | None = None, scan_limit: int | None = None
    ) -> JobPage:
        return await reader.find(self._connection, job_filter, limit, cursor, scan_limit)

    async def counts(self) -> dict[str, dict[State, int]]:
        return await reader.counts(self._connection)

    async def history(self, queue: str, since: float) -> list[QueueMinute]:
        return await reader.history(self._connection, queue, since)

    async def logs(self, job: str) -> list[LogLine]:
        return await reader.logs(self._connection, job)

    async def attempts(self, job: str) -> list[AttemptRecord]:
        return await reader.attempts(self._connection, job)

    async def workers(self) -> list[WorkerInfo]:
        return await reader.workers(self._connection)

    async def backlog(self, queue: str) -> Backlog:
        return await reader.backlog(self._connection, queue)

    async def ahead(self, job: str) -> int | None:
        return await reader.ahead(self._connection, job)

    async def demand(self) -> list[Demand]:
        return await reader.demand(self._connection)

    # -- transactions shared with callers

    async def send_in_transaction(
        self, connection: object, job: str, task: str, payload: bytes, options: bytes
    ) -> None:
        await user_transactions.insert_arrival(
            connection, self._address, _arrival_arguments(job, task, payload, options)
        )

    def send_in_transaction_sync(
        self, connection: object, job: str, task: str, payload: bytes, options: bytes
    ) -> None:
        user_transactions.insert_arrival_sync(
            connection, self._address, _arrival_arguments(job, task, payload, options)
        )

    def transaction(
        self, job: str, fence: int, claim: int
    ) -> AbstractAsyncContextManager[SettlingTransaction]:
        return user_transactions.handler_transaction(
            self._connection, partial(settle_in_transaction, self._runner), job, fence, claim
        )

    # -- maintenance

    async def describe(self) -> StoreFacts:
        return await administration.describe(self._connection)

    async def check(self) -> tuple[str, ...]:
        return await administration.check(self._connection)

    async def backup(self, target: Path, progress: ProgressCallback | None = None) -> None:  # noqa: ARG002 - the contract's
        raise administration.refuse_backup(self._connection, target)

    async def compact(self) -> None:
        await administration.compact(self._connection)

    async def run_maintenance(self) -> bool:
        return await self._table_vacuum.run_maintenance()

    async def copy_jobs(self, after: int = 0, limit: int = 100) -> list[JobCopy]:
        return await administration.copy_jobs(self._connection, after, limit)

    async def copy_ids(self, cursor: str = "") -> IdPage:
        return await administration.copy_ids(self._connection, cursor)

    async def copy_in(self, copies: StoreCopy) -> None:
        await administration.copy_in(self._runner, copies)

    def listen(self, topics: Iterable[str]) -> PostgresListener:
        return self._connection.wakeups.listen(topics)

    def wake(self, topics: Iterable[str]) -> None:
        self._connection.announce(topics)


def _arrival_arguments(
    job: str, task: str, payload: bytes, options: bytes
) -> user_transactions.ArrivalArguments:
    return job, task, payload.decode(), options.decode()
