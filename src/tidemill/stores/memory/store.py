"""The memory store: implements every contract on records in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from platform import python_version
from typing import Self, TypeVar

from tidemill.clock import Clock, Entropy, SystemClock, SystemEntropy
from tidemill.contract.coordination import Leadership
from tidemill.contract.copy import IdPage, JobCopy, StoreCopy
from tidemill.contract.documents import DocumentPage
from tidemill.contract.jobs import Arrival, ClockReading, ExtendResult, PruneResult, ReclaimResult
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
from tidemill.engine import checkpoints, claim, insert, leases, prune, queue_changes, settle
from tidemill.engine import insert as engine_insert
from tidemill.engine import pools as engine_pools
from tidemill.engine.leases import lead, resign
from tidemill.engine.read_sets import ReadSet
from tidemill.engine.records import Records
from tidemill.engine.store_methods import EngineVerbs
from tidemill.errors import ConfigurationError, StoreUnavailable
from tidemill.stores.memory import administration, documents, reader
from tidemill.stores.memory.wakeups import MemoryListener, MemoryListenerHub

T = TypeVar("T")


class _SharedRecords:
    """The records and the wake-up listeners of one memory store. All MemoryStore objects of this store share
    them."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self.records = Records(clock, entropy)
        self.hub = MemoryListenerHub()

    @contextmanager
    def verb(self) -> Iterator[Records]:
        """Context manager that holds the store's lock and yields the records. Afterwards it wakes the
        listeners of the topics in `records.topics`."""
        with self.records.lock:
            self.records.topics.clear()
            yield self.records
            self.records.forget_empty_lanes()
            topics = tuple(self.records.topics)
        if topics:
            self.hub.wake(topics)


class MemoryBlocking:
    """Synchronous forms of the store methods insert, amend and get, for programs without an event loop."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def insert(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
        with self._store.verb() as records:
            return insert.insert(records, groups)

    def amend(self, job_filter: Filter, change: OperatorChange, limit: int = 1000) -> AmendResult:
        with self._store.verb() as records:
            return queue_changes.amend(records, job_filter, change, limit)

    def get(self, ids: Sequence[str]) -> list[Job | None]:
        with self._store.verb() as records:
            return reader.get(records, ids)


class MemoryStore(EngineVerbs):
    """A store in memory. Every method that uses the records holds one lock and is therefore atomic."""

    def __init__(self, clock: Clock | None = None, entropy: Entropy | None = None) -> None:
        self._shared = _SharedRecords(clock or SystemClock(), entropy or SystemEntropy())
        self._closed = False
        self.blocking = MemoryBlocking(self)

    @contextmanager
    def verb(self) -> Iterator[Records]:
        if self._closed:
            raise StoreUnavailable("the store is closed; open it again, or use another handle")
        with self._shared.verb() as records:
            yield records

    async def step(self, plan: ReadSet, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:  # noqa: ARG002 - all rows are in memory
        with self.verb() as records:
            return verb(records)

    async def open(self) -> Self:
        self._closed = False
        with self.verb() as records:
            leases.handle_reboot(records)
        return self

    async def close(self) -> None:
        """Closes this handle. The records stay available to the other handles of the store."""
        self._closed = True

    def new_handle(self) -> Self:
        other = object.__new__(type(self))
        other._shared, other._closed = self._shared, False
        other.blocking = MemoryBlocking(other)
        return other

    def arrive(self, job: str, task: str, payload: bytes, options: bytes = b"{}") -> None:
        """Adds an arrival, as another program does with an INSERT into the table `arrivals` of a database.
        `options`: a JSON object."""
        with self.verb() as records:
            engine_insert.add_arrival(records, job, task, payload, options)

    async def insert(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
        return self.blocking.insert(groups)

    async def arrivals(self, limit: int, after: int = 0) -> list[Arrival]:
        with self.verb() as records:
            return engine_insert.list_arrivals(records, limit, after)

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        with self.verb() as records:
            return claim.claim(records, request)

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
        with self.verb() as records:
            return settle.settle(records, settlements, request)

    async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
        with self.verb() as records:
            return leases.extend(records, heartbeat)

    async def reclaim(self, dead: Sequence[str] = ()) -> ReclaimResult:
        with self.verb() as records:
            return leases.reclaim(records, dead)

    async def amend(self, job_filter: Filter, change: OperatorChange, limit: int = 1000) -> AmendResult:
        return self.blocking.amend(job_filter, change, limit)

    async def prune(self, limit: int = 1000) -> PruneResult:
        with self.verb() as records:
            return prune.prune(records, limit)

    async def read_clock(self) -> ClockReading:
        with self.verb() as records:
            return ClockReading(records.clock.wall(), records.clock.boot())

    async def queues(self) -> list[QueueInfo]:
        with self.verb() as records:
            return queue_changes.list_queues(records)

    async def pools(self) -> list[PoolView]:
        with self.verb() as records:
            return engine_pools.list_pools(records)

    async def pool_history(self, pool: str, since: float) -> list[PoolMinute]:
        with self.verb() as records:
            return engine_pools.pool_history(records, pool, since)

    async def checkpoints(self, job: str) -> list[Checkpoint]:
        with self.verb() as records:
            return checkpoints.list_checkpoints(records, job)

    async def kept_step(self, job: str, step: StepKey) -> bytes | None:
        with self.verb() as records:
            return checkpoints.step_result(records, job, step)

    async def worklist(
        self, kind: DocumentKind, limit: int = 100, ids: Sequence[str] | None = None
    ) -> Worklist:
        with self.verb() as records:
            return documents.get_worklist(records, kind, limit, ids)

    async def documents(self, kind: DocumentKind, ids: Sequence[str]) -> list[Document | None]:
        with self.verb() as records:
            return documents.get_documents(records, kind, ids)

    async def find_documents(
        self,
        kind: DocumentKind,
        *,
        name: str | None = None,
        states: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> DocumentPage:
        with self.verb() as records:
            return documents.find_documents(records, kind, name, states, limit, cursor)

    async def document_counts(self, kind: DocumentKind) -> dict[str, int]:
        with self.verb() as records:
            return documents.count_documents(records, kind)

    async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Leadership:
        with self.verb() as records:
            return lead(records, duties, worker, lease)

    async def resign(self, duties: Sequence[str], worker: str) -> None:
        with self.verb() as records:
            resign(records, duties, worker)

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return self.blocking.get(ids)

    async def find(
        self, job_filter: Filter, limit: int = 100, cursor: int | None = None, scan_limit: int | None = None
    ) -> JobPage:
        with self.verb() as records:
            return reader.find(records, job_filter, limit, cursor, scan_limit)

    async def counts(self) -> dict[str, dict[State, int]]:
        with self.verb() as records:
            return reader.counts(records)

    async def history(self, queue: str, since: float) -> list[QueueMinute]:
        with self.verb() as records:
            return reader.history(records, queue, since)

    async def logs(self, job: str) -> list[LogLine]:
        with self.verb() as records:
            return reader.logs(records, job)

    async def attempts(self, job: str) -> list[AttemptRecord]:
        with self.verb() as records:
            return reader.attempts(records, job)

    async def workers(self) -> list[WorkerInfo]:
        with self.verb() as records:
            return reader.workers(records)

    async def backlog(self, queue: str) -> Backlog:
        with self.verb() as records:
            return reader.backlog(records, queue)

    async def ahead(self, job: str) -> int | None:
        with self.verb() as records:
            return reader.ahead(records, job)

    async def demand(self) -> list[Demand]:
        with self.verb() as records:
            return reader.demand(records)

    async def describe(self) -> StoreFacts:
        return StoreFacts(kind="memory", engine=f"Python {python_version()}", location="this process")

    async def check(self) -> tuple[str, ...]:
        return ()

    async def backup(self, target: Path, progress: ProgressCallback | None = None) -> None:  # noqa: ARG002 - the contract's
        raise ConfigurationError(
            f"{target}: a store in memory ends with its process and has no backup; "
            "keep jobs in a file (sqlite:///…) instead"
        )

    async def compact(self) -> None:
        """Does nothing: Python frees memory by itself."""

    async def copy_jobs(self, after: int = 0, limit: int = 100) -> list[JobCopy]:
        with self.verb() as records:
            return administration.copy_jobs(records, after, limit)

    async def copy_ids(self, cursor: str = "") -> IdPage:  # noqa: ARG002 - one page has them all
        with self.verb() as records:
            return administration.copy_ids(records)

    async def copy_in(self, copies: StoreCopy) -> None:
        with self.verb() as records:
            administration.copy_in(records, copies)

    def listen(self, topics: Iterable[str]) -> MemoryListener:
        return MemoryListener(self._shared.hub, topics)

    def wake(self, topics: Iterable[str]) -> None:
        self._shared.hub.wake(topics)
