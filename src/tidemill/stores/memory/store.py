"""The store as everybody else sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from platform import python_version
from typing import Self, TypeVar

from tidemill.clock import Clock, Entropy, SystemClock, SystemEntropy
from tidemill.contract.coordinator import Led
from tidemill.contract.copying import Copies, IdPage, JobCopy
from tidemill.contract.courses import CoursePage
from tidemill.contract.jobs import Arrival, Extended, Pruned, Reading, Reclaimed
from tidemill.contract.pools import PoolMinute, PoolView
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import AttemptRecord, Backlog, LogLine, Minute, Page, WorkerInfo
from tidemill.contract.upkeep import Progress, StoreFacts
from tidemill.core.changes import Amended, Change
from tidemill.core.checkpoints import Checkpoint, Step
from tidemill.core.claims import ClaimRequest, Claims, Heartbeat, Settled, Settlement
from tidemill.core.courses import Agenda, Course, Kind
from tidemill.core.demand import Demand
from tidemill.core.filters import Filter
from tidemill.core.job import Group, Job
from tidemill.core.queues import Inserted
from tidemill.core.states import State
from tidemill.engine import (
    admit,
    amend,
    checkpoints,
    claim,
    extend,
    insert,
    prune,
    reclaim,
    settle,
    steering,
)
from tidemill.engine import pools as pooling
from tidemill.engine.plans import Plan
from tidemill.engine.records import Records
from tidemill.engine.verbs import SteppedVerbs
from tidemill.errors import ConfigurationError, StoreUnavailable
from tidemill.stores.memory import copying, courses, reader
from tidemill.stores.memory.wakeups import Hub, MemoryListener

T = TypeVar("T")


class _Shared:
    """What all handles of one store have in common."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self.records = Records(clock, entropy)
        self.hub = Hub()

    @contextmanager
    def verb(self) -> Iterator[Records]:
        """One atomic step; what it rang is heard when it is over."""
        with self.records.lock:
            self.records.topics.clear()
            yield self.records
            self.records.end_step()
            topics = tuple(self.records.topics)
        if topics:
            self.hub.ring(topics)


class MemoryBlocking:
    """The verbs a program without an event loop needs."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def insert(self, groups: Sequence[Group]) -> list[list[Inserted]]:
        with self._store.verb() as records:
            return insert.insert(records, groups)

    def amend(self, wanted: Filter, change: Change, limit: int = 1000) -> Amended:
        with self._store.verb() as records:
            return amend.amend(records, wanted, change, limit)

    def get(self, ids: Sequence[str]) -> list[Job | None]:
        with self._store.verb() as records:
            return reader.get(records, ids)


class MemoryStore(SteppedVerbs):
    """Every verb runs to its end under one lock and awaits nothing, which makes it atomic."""

    def __init__(self, clock: Clock | None = None, entropy: Entropy | None = None) -> None:
        self._shared = _Shared(clock or SystemClock(), entropy or SystemEntropy())
        self._closed = False
        self.blocking = MemoryBlocking(self)

    @contextmanager
    def verb(self) -> Iterator[Records]:
        if self._closed:
            raise StoreUnavailable("the store is closed; open it again, or use another handle")
        with self._shared.verb() as records:
            yield records

    async def step(self, plan: Plan, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:  # noqa: ARG002 - nothing has to be looked up first
        with self.verb() as records:
            return verb(records)

    async def open(self) -> Self:
        self._closed = False
        with self.verb() as records:
            reclaim.notice_boot(records)
        return self

    async def close(self) -> None:
        """Closes this handle. What the store holds lives as long as any handle does."""
        self._closed = True

    def another(self) -> Self:
        other = object.__new__(type(self))
        other._shared, other._closed = self._shared, False
        other.blocking = MemoryBlocking(other)
        return other

    def arrive(self, job: str, task: str, payload: bytes, options: bytes = b"{}") -> None:
        """A request from outside: what an INSERT into `arrivals` is on a database."""
        with self.verb() as records:
            admit.arrive(records, job, task, payload, options)

    async def insert(self, groups: Sequence[Group]) -> list[list[Inserted]]:
        return self.blocking.insert(groups)

    async def arrivals(self, limit: int, after: int = 0) -> list[Arrival]:
        with self.verb() as records:
            return admit.arrivals(records, limit, after)

    async def claim(self, request: ClaimRequest) -> Claims:
        with self.verb() as records:
            return claim.claim(records, request)

    async def settle(self, settlements: Sequence[Settlement], request: ClaimRequest | None = None) -> Settled:
        with self.verb() as records:
            return settle.settle(records, settlements, request)

    async def extend(self, heartbeat: Heartbeat) -> Extended:
        with self.verb() as records:
            return extend.extend(records, heartbeat)

    async def reclaim(self, dead: Sequence[str] = ()) -> Reclaimed:
        with self.verb() as records:
            return reclaim.reclaim(records, dead)

    async def amend(self, wanted: Filter, change: Change, limit: int = 1000) -> Amended:
        return self.blocking.amend(wanted, change, limit)

    async def prune(self, limit: int = 1000) -> Pruned:
        with self.verb() as records:
            return prune.prune(records, limit)

    async def read_clock(self) -> Reading:
        with self.verb() as records:
            return Reading(records.clock.wall(), records.clock.boot())

    async def queues(self) -> list[QueueInfo]:
        with self.verb() as records:
            return steering.queues(records)

    async def pools(self) -> list[PoolView]:
        with self.verb() as records:
            return pooling.pools(records)

    async def pool_history(self, pool: str, since: float) -> list[PoolMinute]:
        with self.verb() as records:
            return pooling.history(records, pool, since)

    async def checkpoints(self, job: str) -> list[Checkpoint]:
        with self.verb() as records:
            return checkpoints.every(records, job)

    async def kept_step(self, job: str, step: Step) -> bytes | None:
        with self.verb() as records:
            return checkpoints.result(records, job, step)

    async def agenda(self, kind: Kind, limit: int = 100, ids: Sequence[str] | None = None) -> Agenda:
        with self.verb() as records:
            return courses.agenda(records, kind, limit, ids)

    async def courses(self, kind: Kind, ids: Sequence[str]) -> list[Course | None]:
        with self.verb() as records:
            return courses.courses(records, kind, ids)

    async def find_courses(
        self,
        kind: Kind,
        *,
        name: str | None = None,
        states: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> CoursePage:
        with self.verb() as records:
            return courses.find(records, kind, name, states, limit, cursor)

    async def course_counts(self, kind: Kind) -> dict[str, int]:
        with self.verb() as records:
            return courses.counts(records, kind)

    async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Led:
        with self.verb() as records:
            return steering.lead(records, duties, worker, lease)

    async def resign(self, duties: Sequence[str], worker: str) -> None:
        with self.verb() as records:
            steering.resign(records, duties, worker)

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return self.blocking.get(ids)

    async def find(
        self, wanted: Filter, limit: int = 100, cursor: int | None = None, looks: int | None = None
    ) -> Page:
        with self.verb() as records:
            return reader.find(records, wanted, limit, cursor, looks)

    async def counts(self) -> dict[str, dict[State, int]]:
        with self.verb() as records:
            return reader.counts(records)

    async def history(self, queue: str, since: float) -> list[Minute]:
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

    async def backup(self, target: Path, progress: Progress | None = None) -> None:  # noqa: ARG002 - the contract's
        raise ConfigurationError(
            f"{target}: a store in memory ends with its process and has no backup; "
            "keep jobs in a file (sqlite:///…) instead"
        )

    async def compact(self) -> None:
        """Python gives memory back by itself."""

    async def copy_jobs(self, after: int = 0, limit: int = 100) -> list[JobCopy]:
        with self.verb() as records:
            return copying.copy_jobs(records, after, limit)

    async def copy_ids(self, cursor: str = "") -> IdPage:  # noqa: ARG002 - one page has them all
        with self.verb() as records:
            return copying.copy_ids(records)

    async def copy_in(self, copies: Copies) -> None:
        with self.verb() as records:
            copying.copy_in(records, copies)

    def listen(self, topics: Iterable[str]) -> MemoryListener:
        return MemoryListener(self._shared.hub, topics)

    def ring(self, topics: Iterable[str]) -> None:
        self._shared.hub.ring(topics)
