"""The SQLite store: every contract, on one file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from msgspec import UNSET, UnsetType

from tidemill.clock import Clock, Entropy, SystemClock, SystemEntropy
from tidemill.contract.coordinator import Led
from tidemill.contract.copying import Copies, IdPage, JobCopy
from tidemill.contract.courses import CoursePage
from tidemill.contract.jobs import Admission, Arrival, Extended, Pruned, Reading, Reclaimed
from tidemill.contract.pools import PoolMinute, PoolView
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import AttemptRecord, Backlog, LogLine, Minute, Page, WorkerInfo
from tidemill.contract.upkeep import Progress, StoreFacts
from tidemill.contract.wakeups import Listener, queue_topic
from tidemill.core.changes import Amended, Change
from tidemill.core.checkpoints import Beginning, Checkpoint, OnUnknown, Step, Try
from tidemill.core.claims import ClaimRequest, Claims, Heartbeat, Settled, Settlement
from tidemill.core.courses import Advance, Advanced, Agenda, Course, Kind
from tidemill.core.demand import Demand
from tidemill.core.departures import Departure
from tidemill.core.filters import Filter
from tidemill.core.job import Group, Job
from tidemill.core.needs import Need
from tidemill.core.outcomes import Answer
from tidemill.core.pool_news import PoolNews
from tidemill.core.pools import PoolChanges, PoolSettings
from tidemill.core.queues import Inserted, QueueChanges, QueueSettings, overridden
from tidemill.core.spending import Observation
from tidemill.core.states import State
from tidemill.stores.sqlite import checkpoints as steps
from tidemill.stores.sqlite import coordinator, copying, courses, inbox, pool_views, queues, reader, upkeep
from tidemill.stores.sqlite import pools as pool_verbs
from tidemill.stores.sqlite.admit import admit, arrivals
from tidemill.stores.sqlite.advance import advance
from tidemill.stores.sqlite.amend import amend
from tidemill.stores.sqlite.backup import backup
from tidemill.stores.sqlite.blocking import BlockingStore
from tidemill.stores.sqlite.claim import claim
from tidemill.stores.sqlite.extend import extend
from tidemill.stores.sqlite.file import DatabaseFile
from tidemill.stores.sqlite.insert import insert
from tidemill.stores.sqlite.prune import prune
from tidemill.stores.sqlite.reading import ReadConnection
from tidemill.stores.sqlite.reclaim import reclaim
from tidemill.stores.sqlite.settle import settle
from tidemill.stores.sqlite.transaction import Transaction
from tidemill.stores.sqlite.wakeups import Wakeups
from tidemill.stores.sqlite.writer import Writer
from tidemill.urls import DEFAULT_MODE


class SqliteStore:
    """Steps that may not be forgotten are `durable`: their commit waits for the disk. A claim or
    a heartbeat lost in a power cut is one that died with its worker anyway.

    `mode` are the permissions of files that the store creates."""

    def __init__(
        self,
        path: str | Path,
        *,
        mode: int = DEFAULT_MODE,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        self.path = Path(path)
        self._file, self._owns_file = DatabaseFile(self.path, mode), True
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._share(Wakeups(self.path, self._entropy, mode))

    async def open(self) -> Self:
        await asyncio.to_thread(self._writer.open)
        for looks in (self._reads, self._searches, self._upkeep):
            looks.open()
        return self

    async def close(self) -> None:
        await asyncio.to_thread(self._writer.close)
        for looks in (self._reads, self._searches, self._upkeep):
            await asyncio.to_thread(looks.close)
        if self._owns_file:
            self._file.forget()

    def another(self) -> SqliteStore:
        """With the same wake-ups: within a process no listener is rung through a socket. And with the same
        file: a handle that is opened after the file was deleted creates no new one."""
        other = SqliteStore(self.path, clock=self._clock, entropy=self._entropy)
        other._file, other._owns_file = self._file, False
        other._share(self._wakeups)
        return other

    def _share(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._writer = Writer(self._file, self._clock, wakeups)
        self._reads = ReadConnection(self._file, self._clock, self._file_inbox)
        # A look at one job shall not wait for a search, nor a search for a copy of everything.
        self._searches = ReadConnection(self._file, self._clock, self._file_inbox)
        self._upkeep = ReadConnection(self._file, self._clock, self._file_inbox)
        self.blocking = BlockingStore(self._writer, self._reads, wakeups)

    def _file_inbox(self) -> None:
        self._writer.run(lambda _: None, durable=False)

    # -- jobs

    async def insert(self, groups: Sequence[Group]) -> list[list[Inserted]]:
        def append_or_insert(transaction: Transaction) -> list[list[Inserted]]:
            appended = inbox.append(transaction.connection, transaction.now, groups)
            if appended is None or inbox.is_long(transaction.connection):
                inbox.file(transaction)
            if appended is None:
                return insert(transaction, groups)
            transaction.topics.add(queue_topic(groups[0].queue))
            return appended

        return await self._writer.submit(append_or_insert, durable=True, files_inbox=False)

    async def arrivals(self, limit: int, after: int = 0) -> list[Arrival]:
        return await self._reads.run(lambda transaction: arrivals(transaction, limit, after))

    async def admit(self, admissions: Sequence[Admission]) -> int:
        return await self._writer.submit(lambda transaction: admit(transaction, admissions), durable=True)

    async def claim(self, request: ClaimRequest) -> Claims:
        began = self._clock.boot()
        return await self._writer.submit(
            lambda transaction: self._claim(transaction, request, began), durable=False
        )

    def _claim(self, transaction: Transaction, request: ClaimRequest, began: float) -> Claims:
        """P20: it waited for the steps before it, and for the file's lock."""
        return claim(transaction, request, self._entropy.claim_id).after(transaction.boot - began)

    async def settle(self, settlements: Sequence[Settlement], request: ClaimRequest | None = None) -> Settled:
        began = self._clock.boot()

        def settle_and_claim(transaction: Transaction) -> Settled:
            answers = settle(transaction, settlements, self._entropy.chance)
            transaction.refresh_lanes()
            news = transaction.take_news()
            claims = None if request is None else self._claim(transaction, request, began)
            return Settled(answers, claims, news)

        return await self._writer.submit(settle_and_claim, durable=bool(settlements))

    async def extend(self, heartbeat: Heartbeat) -> Extended:
        return await self._writer.submit(lambda transaction: extend(transaction, heartbeat), durable=False)

    async def reclaim(self, dead: Sequence[str] = ()) -> Reclaimed:
        return await self._writer.submit(lambda transaction: reclaim(transaction, dead), durable=True)

    async def amend(self, wanted: Filter, change: Change, limit: int = 1000) -> Amended:
        return await self._writer.submit(
            lambda transaction: amend(transaction, wanted, change, limit), durable=True
        )

    async def prune(self, limit: int = 1000) -> Pruned:
        return await self._writer.submit(lambda transaction: prune(transaction, limit), durable=False)

    async def read_clock(self) -> Reading:
        self._file.check()  # readiness asks for the clock
        return Reading(self._clock.wall(), self._clock.boot())

    # -- queues

    async def declare(self, settings: Mapping[str, QueueSettings]) -> None:
        await self._writer.submit(lambda transaction: queues.declare(transaction, settings), durable=True)

    async def override(
        self,
        queue: str,
        changes: QueueChanges,
        *,
        by: str,
        reason: str | None = None,
        until: float | UnsetType | None = UNSET,
    ) -> None:
        change = partial(overridden, changes=changes, by=by, reason=reason, until=until)
        await self._writer.submit(
            lambda transaction: queues.override(transaction, queue, change), durable=True
        )

    async def clear_override(self, queue: str, names: Sequence[str] = ()) -> None:
        await self._writer.submit(
            lambda transaction: queues.clear_override(transaction, queue, names), durable=True
        )

    async def pause(self, queue: str, *, until: float | None = None, reason: str | None = None) -> None:
        await self._writer.submit(
            lambda transaction: queues.pause(transaction, queue, until, reason), durable=True
        )

    async def resume(self, queue: str) -> None:
        await self._writer.submit(lambda transaction: queues.resume(transaction, queue), durable=True)

    async def queues(self) -> list[QueueInfo]:
        return await self._reads.run(queues.every)

    # -- pools

    async def declare_pools(self, pools: Mapping[str, PoolSettings]) -> None:
        await self._writer.submit(lambda transaction: pool_verbs.declare(transaction, pools), durable=True)

    async def override_pool(
        self,
        pool: str,
        changes: PoolChanges | None,
        *,
        by: str,
        reason: str | None = None,
        until: float | None = None,
    ) -> None:
        set_ = partial(pool_verbs.override, pool=pool, changes=changes, by=by, reason=reason, until=until)
        await self._writer.submit(set_, durable=True)

    async def reserve(
        self, job: str, fence: int, claim: int, need: Need, departure: Departure | None = None
    ) -> float | None:
        return await self._writer.submit(
            lambda transaction: pool_verbs.reserve(transaction, job, fence, claim, need, departure),
            durable=True,
        )

    async def observe(self, observations: Sequence[Observation]) -> tuple[PoolNews, ...]:
        return await self._writer.submit(
            lambda transaction: pool_verbs.observe(transaction, observations, self._entropy.chance),
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
        close = partial(pool_verbs.close, place=(pool, key), until=until, by=by, reason=reason)
        await self._writer.submit(close, durable=True)

    async def open_pool(self, pool: str, *, key: str | None = None) -> None:
        await self._writer.submit(
            lambda transaction: pool_verbs.open_again(transaction, (pool, key)), durable=True
        )

    async def pools(self) -> list[PoolView]:
        return await self._reads.run(pool_views.every)

    async def pool_history(self, pool: str, since: float) -> list[PoolMinute]:
        return await self._reads.run(lambda transaction: pool_views.history(transaction, pool, since))

    # -- checkpoints

    async def begin_step(self, job: str, by: Try, step: Step, on_unknown: OnUnknown = "retry") -> Beginning:
        return await self._writer.submit(
            lambda transaction: steps.begin(transaction, job, by, step, on_unknown), durable=True
        )

    async def forget_step(self, job: str, by: Try, step: Step) -> None:
        await self._writer.submit(lambda transaction: steps.forget(transaction, job, by, step), durable=True)

    async def keep_step(
        self, job: str, by: Try, step: Step, result: bytes, *, paid: bool
    ) -> tuple[Answer, bytes]:
        return await self._writer.submit(
            lambda transaction: steps.keep(transaction, job, by, step, result, paid=paid), durable=True
        )

    async def checkpoints(self, job: str) -> list[Checkpoint]:
        return await self._reads.run(lambda transaction: steps.every(transaction, job))

    async def kept_step(self, job: str, step: Step) -> bytes | None:
        return await self._reads.run(lambda transaction: steps.result(transaction, job, step))

    # -- courses

    async def advance(self, advances: Sequence[Advance]) -> list[Advanced]:
        return await self._writer.submit(lambda transaction: advance(transaction, advances), durable=True)

    async def agenda(self, kind: Kind, limit: int = 100, ids: Sequence[str] | None = None) -> Agenda:
        return await self._reads.run(lambda transaction: courses.agenda(transaction, kind, limit, ids))

    async def courses(self, kind: Kind, ids: Sequence[str]) -> list[Course | None]:
        return await self._reads.run(lambda transaction: courses.courses(transaction, kind, ids))

    async def find_courses(
        self,
        kind: Kind,
        *,
        name: str | None = None,
        states: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> CoursePage:
        return await self._searches.run(
            lambda transaction: courses.find(transaction, kind, name, states, limit, cursor)
        )

    async def course_counts(self, kind: Kind) -> dict[str, int]:
        return await self._reads.run(lambda transaction: courses.counts(transaction, kind))

    # -- reader

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await self._reads.run(lambda transaction: reader.get(transaction, ids))

    async def find(
        self, wanted: Filter, limit: int = 100, cursor: int | None = None, looks: int | None = None
    ) -> Page:
        return await self._searches.run(
            lambda transaction: reader.find(transaction, wanted, limit, cursor, looks)
        )

    async def counts(self) -> dict[str, dict[State, int]]:
        return await self._reads.run(reader.counts)

    async def history(self, queue: str, since: float) -> list[Minute]:
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

    async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Led:
        return await self._writer.submit(
            lambda transaction: coordinator.lead(transaction, duties, worker, lease), durable=False
        )

    async def resign(self, duties: Sequence[str], worker: str) -> None:
        await self._writer.submit(
            lambda transaction: coordinator.resign(transaction, duties, worker), durable=False
        )

    # -- upkeep

    async def describe(self) -> StoreFacts:
        return await self._reads.run(lambda transaction: upkeep.describe(transaction, self._file))

    async def check(self) -> tuple[str, ...]:
        return await self._upkeep.run(upkeep.check)

    async def backup(self, target: Path, progress: Progress | None = None) -> None:
        await self._upkeep.run(lambda transaction: backup(transaction.connection, target, progress))

    async def compact(self) -> None:
        await asyncio.to_thread(self._writer.run_alone, upkeep.compact)

    # -- copying

    async def copy_jobs(self, after: int = 0, limit: int = 100) -> list[JobCopy]:
        return await self._upkeep.run(lambda transaction: copying.copy_jobs(transaction, after, limit))

    async def copy_ids(self, cursor: str = "") -> IdPage:
        return await self._upkeep.run(lambda transaction: copying.copy_ids(transaction, cursor))

    async def copy_in(self, copies: Copies) -> None:
        await self._writer.submit(lambda transaction: copying.copy_in(transaction, copies), durable=True)

    # -- wake-ups

    def listen(self, topics: Iterable[str]) -> Listener:
        return self._wakeups.listen(topics)

    def ring(self, topics: Iterable[str]) -> None:
        self._wakeups.ring(topics)
