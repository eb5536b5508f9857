"""The store as everybody else sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from msgspec.structs import replace

from tidemill.clock import Clock, Entropy, SystemEntropy
from tidemill.contract.coordinator import Led
from tidemill.contract.copying import Copies, IdPage, JobCopy
from tidemill.contract.courses import CoursePage
from tidemill.contract.jobs import Arrival, Extended, Pruned, Reading, Reclaimed
from tidemill.contract.pools import PoolMinute, PoolView
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import AttemptRecord, Backlog, LogLine, Minute, Page, WorkerInfo
from tidemill.contract.transactions import Ending
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
from tidemill.engine import amend, plans
from tidemill.engine.plans import Plan
from tidemill.engine.records import Records
from tidemill.engine.verbs import SteppedVerbs
from tidemill.stores.postgres import copying, courses, ending, outside, pool_views, reader, upkeep
from tidemill.stores.postgres.address import Address
from tidemill.stores.postgres.boots import notice_boot
from tidemill.stores.postgres.chores import lead, reclaim, resign
from tidemill.stores.postgres.claim import claim
from tidemill.stores.postgres.connection import Connection
from tidemill.stores.postgres.extend import extend
from tidemill.stores.postgres.home import Home
from tidemill.stores.postgres.insert import insert
from tidemill.stores.postgres.listener import PostgresListener
from tidemill.stores.postgres.prune import prune
from tidemill.stores.postgres.settle import settle, settle_in
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.tending import Tending

CLOCK = load("clock")


T = TypeVar("T")


class PostgresStore(SteppedVerbs):
    """`clock` is a test's; without one the server's clock is the truth."""

    blocking = None

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        self._address, self._clock = Address.parse(url, schema), clock
        self._entropy = entropy or SystemEntropy()
        self._connect()

    def _connect(self) -> None:
        self._connection = Connection(self._address, self._clock)
        self._home = Home(self._connection, self._entropy)
        self._tending = Tending(self._connection)

    @property
    def address(self) -> Address:
        return self._address

    async def open(self) -> Self:
        await self._connection.open()
        if self._clock is not None:
            await notice_boot(self._home)
        return self

    async def is_made(self) -> bool:
        return await self._connection.is_made()

    async def close(self) -> None:
        await self._connection.close()

    def another(self) -> Self:
        other = object.__new__(type(self))
        other._address, other._clock, other._entropy = self._address, self._clock, self._entropy
        other._connect()
        return other

    async def step(self, plan: Plan, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:
        return await self._home.run(plan, verb, repeatable=repeatable)

    # -- jobs

    async def insert(self, groups: Sequence[Group]) -> list[list[Inserted]]:
        return await insert(self._home, groups)

    async def arrivals(self, limit: int, after: int = 0) -> list[Arrival]:
        return await reader.arrivals(self._connection, limit, after)

    async def claim(self, request: ClaimRequest) -> Claims:
        return await claim(self._home, request)

    async def settle(self, settlements: Sequence[Settlement], request: ClaimRequest | None = None) -> Settled:
        return await settle(self._home, settlements, request)

    async def extend(self, heartbeat: Heartbeat) -> Extended:
        return await extend(self._home, heartbeat)

    async def reclaim(self, dead: Sequence[str] = ()) -> Reclaimed:
        return await reclaim(self._home, dead)

    async def amend(self, wanted: Filter, change: Change, limit: int = 1000) -> Amended:
        """Who is meant is looked for first: none of them has to be locked for it."""
        meant = await reader.oldest(self._connection, wanted, limit)
        if not meant:
            return Amended((), ())
        named = replace(wanted, ids=meant)
        return await self._home.run(
            plans.amend(meant, change),
            lambda records: amend.amend(records, named, change, limit),
            repeatable=False,
        )

    async def prune(self, limit: int = 1000) -> Pruned:
        return await prune(self._home, limit)

    async def read_clock(self) -> Reading:
        (row,) = await self._connection.fetch(CLOCK.read_clock, *self._connection.clock.asked())
        return self._connection.clock.heard(row["wall"], row["boot"], row["epoch"])

    # -- queues

    async def queues(self) -> list[QueueInfo]:
        return await reader.queues(self._connection)

    # -- pools

    async def pools(self) -> list[PoolView]:
        return await pool_views.every(self._connection, self._entropy)

    async def pool_history(self, pool: str, since: float) -> list[PoolMinute]:
        return await pool_views.history(self._connection, pool, since)

    # -- courses

    async def agenda(self, kind: Kind, limit: int = 100, ids: Sequence[str] | None = None) -> Agenda:
        return await courses.agenda(self._connection, kind, limit, ids)

    async def courses(self, kind: Kind, ids: Sequence[str]) -> list[Course | None]:
        return await courses.courses(self._connection, kind, ids)

    async def find_courses(
        self,
        kind: Kind,
        *,
        name: str | None = None,
        states: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> CoursePage:
        return await courses.find(self._connection, kind, name, states, limit, cursor)

    async def course_counts(self, kind: Kind) -> dict[str, int]:
        return await courses.counts(self._connection, kind)

    # -- checkpoints

    async def checkpoints(self, job: str) -> list[Checkpoint]:
        return await reader.checkpoints(self._connection, job)

    async def kept_step(self, job: str, step: Step) -> bytes | None:
        return await reader.kept_step(self._connection, job, step)

    # -- chores

    async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Led:
        return await lead(self._home, duties, worker, lease)

    async def resign(self, duties: Sequence[str], worker: str) -> None:
        await resign(self._home, duties, worker)

    # -- reading

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await reader.get(self._connection, ids)

    async def find(
        self, wanted: Filter, limit: int = 100, cursor: int | None = None, looks: int | None = None
    ) -> Page:
        return await reader.find(self._connection, wanted, limit, cursor, looks)

    async def counts(self) -> dict[str, dict[State, int]]:
        return await reader.counts(self._connection)

    async def history(self, queue: str, since: float) -> list[Minute]:
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

    async def send_inside(
        self, connection: object, job: str, task: str, payload: bytes, options: bytes
    ) -> None:
        await outside.send(connection, self._address, _words(job, task, payload, options))

    def send_inside_sync(
        self, connection: object, job: str, task: str, payload: bytes, options: bytes
    ) -> None:
        outside.send_sync(connection, self._address, _words(job, task, payload, options))

    def transaction(self, job: str, fence: int, claim: int) -> AbstractAsyncContextManager[Ending]:
        return ending.transaction(self._connection, partial(settle_in, self._home), job, fence, claim)

    # -- looking after the store

    async def describe(self) -> StoreFacts:
        return await upkeep.describe(self._connection)

    async def check(self) -> tuple[str, ...]:
        return await upkeep.check(self._connection)

    async def backup(self, target: Path, progress: Progress | None = None) -> None:  # noqa: ARG002 - the contract's
        raise upkeep.refuse_backup(self._connection, target)

    async def compact(self) -> None:
        await upkeep.compact(self._connection)

    async def tend(self) -> bool:
        return await self._tending.tend()

    async def copy_jobs(self, after: int = 0, limit: int = 100) -> list[JobCopy]:
        return await copying.copy_jobs(self._connection, after, limit)

    async def copy_ids(self, cursor: str = "") -> IdPage:
        return await copying.copy_ids(self._connection, cursor)

    async def copy_in(self, copies: Copies) -> None:
        await copying.copy_in(self._home, copies)

    def listen(self, topics: Iterable[str]) -> PostgresListener:
        return self._connection.wakeups.listen(topics)

    def ring(self, topics: Iterable[str]) -> None:
        self._connection.announce(topics)


def _words(job: str, task: str, payload: bytes, options: bytes) -> outside.Words:
    return job, task, payload.decode(), options.decode()
