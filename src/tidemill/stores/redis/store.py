"""The store as everybody else sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from tidemill.clock import Clock, Entropy, SystemEntropy
from tidemill.contract.coordinator import Led
from tidemill.contract.copying import Copies, IdPage, JobCopy
from tidemill.contract.courses import CoursePage
from tidemill.contract.courses import checked as checked_advances
from tidemill.contract.jobs import Admission, Arrival, Extended, Pruned, Reading, Reclaimed
from tidemill.contract.pools import PoolMinute, PoolView
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import AttemptRecord, Backlog, LogLine, Minute, Page, WorkerInfo
from tidemill.contract.upkeep import Progress, StoreFacts
from tidemill.core.changes import Amended, Change
from tidemill.core.checkpoints import Checkpoint, Step
from tidemill.core.claims import ClaimRequest, Claims, Heartbeat, Settled, Settlement
from tidemill.core.courses import Advance, Advanced, Agenda, Course, Kind
from tidemill.core.demand import Demand
from tidemill.core.filters import Filter
from tidemill.core.job import Group, Job
from tidemill.core.queues import Inserted
from tidemill.core.states import State
from tidemill.engine.plans import Plan
from tidemill.engine.records import Records
from tidemill.engine.verbs import SteppedVerbs
from tidemill.stores.redis import arrivals, copying, courses, leading, reader, reclaim, upkeep
from tidemill.stores.redis.address import parse
from tidemill.stores.redis.amend import amend
from tidemill.stores.redis.boots import notice_boot
from tidemill.stores.redis.bounds import BYTES, STEPPED, Weight, runs, weight_of
from tidemill.stores.redis.check import check
from tidemill.stores.redis.claim import claim
from tidemill.stores.redis.extend import extend
from tidemill.stores.redis.handle import Handle
from tidemill.stores.redis.insert import insert
from tidemill.stores.redis.lines import finished
from tidemill.stores.redis.prune import prune
from tidemill.stores.redis.settle import settle
from tidemill.stores.redis.slow import Slow
from tidemill.stores.redis.wakeups import RedisListener

T = TypeVar("T")


def _weight(advance: Advance) -> Weight:
    jobs, size = weight_of(made.job for made in advance.jobs)
    return jobs + 1, size


class RedisBlocking:
    """The verbs a program without an event loop needs, each on a connection of its thread."""

    def __init__(self, handle: Handle, entropy: Entropy) -> None:
        self._handle, self._entropy = handle, entropy

    def insert(self, groups: Sequence[Group]) -> list[list[Inserted]]:
        with self._handle.threads.shard() as shard:
            return finished(insert(Slow(shard, self._entropy), groups))

    def amend(self, wanted: Filter, change: Change, limit: int = 1000) -> Amended:
        with self._handle.threads.shard() as shard:
            return finished(amend(Slow(shard, self._entropy), wanted, change, limit))

    def get(self, ids: Sequence[str]) -> list[Job | None]:
        with self._handle.threads.shard() as shard:
            return finished(reader.get(shard, ids))


class RedisStore(SteppedVerbs):
    """Without a `clock` the server's is the truth. `skew` is for tests of a server whose clock is stepped."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        skew: Callable[[], float] | None = None,
    ) -> None:
        self._use(Handle(parse(url, prefix), clock, skew), entropy or SystemEntropy())

    def _use(self, handle: Handle, entropy: Entropy) -> None:
        self._handle, self._entropy = handle, entropy
        self.blocking = RedisBlocking(handle, entropy)

    @property
    def _slow(self) -> Slow:
        return Slow(self._handle.shard, self._entropy)

    async def step(self, plan: Plan, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:  # noqa: ARG002 - a commit whose reply was lost is never sent again
        return await self._slow.run(plan, verb)

    async def open(self) -> Self:
        await self._handle.open()
        try:
            await notice_boot(self._slow)
        except BaseException:
            await self._handle.close()
            raise
        return self

    async def close(self) -> None:
        await self._handle.close()

    def another(self) -> Self:
        other = object.__new__(type(self))
        other._use(self._handle.another(), self._entropy)
        return other

    # -- jobs

    async def insert(self, groups: Sequence[Group]) -> list[list[Inserted]]:
        return await insert(self._slow, groups)

    async def arrivals(self, limit: int, after: int = 0) -> list[Arrival]:
        return await arrivals.arrivals(self._handle.shard, limit, after)

    async def admit(self, admissions: Sequence[Admission]) -> int:
        admitted = 0
        for some in runs(admissions, lambda one: (1, len(one.arrival.payload)), (STEPPED, BYTES)):
            admitted += await super().admit(some)
        return admitted

    async def claim(self, request: ClaimRequest) -> Claims:
        return await claim(self._slow, request)

    async def settle(self, settlements: Sequence[Settlement], request: ClaimRequest | None = None) -> Settled:
        return await settle(self._slow, settlements, request)

    async def extend(self, heartbeat: Heartbeat) -> Extended:
        return await extend(self._slow, heartbeat)

    async def reclaim(self, dead: Sequence[str] = ()) -> Reclaimed:
        return await reclaim.reclaim(self._slow, dead)

    async def amend(self, wanted: Filter, change: Change, limit: int = 1000) -> Amended:
        return await amend(self._slow, wanted, change, limit)

    async def prune(self, limit: int = 1000) -> Pruned:
        return await prune(self._slow, limit)

    async def read_clock(self) -> Reading:
        return Reading(*await self._handle.shard.read_clock())

    # -- courses

    async def advance(self, advances: Sequence[Advance]) -> list[Advanced]:
        checked_advances(advances)  # F5: of all, before the first of them is done
        answers: list[Advanced] = []
        for some in runs(advances, _weight, (STEPPED, BYTES)):
            answers += await super().advance(some)
        return answers

    async def agenda(self, kind: Kind, limit: int = 100, ids: Sequence[str] | None = None) -> Agenda:
        return await courses.agenda(self._handle.shard, kind, limit, ids)

    async def courses(self, kind: Kind, ids: Sequence[str]) -> list[Course | None]:
        return await courses.courses(self._handle.shard, kind, ids)

    async def find_courses(
        self,
        kind: Kind,
        *,
        name: str | None = None,
        states: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> CoursePage:
        return await courses.find(self._handle.shard, kind, name, states, limit, cursor)

    async def course_counts(self, kind: Kind) -> dict[str, int]:
        return await courses.counts(self._handle.shard, kind)

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

    async def kept_step(self, job: str, step: Step) -> bytes | None:
        return await reader.kept_step(self._handle.shard, job, step)

    # -- leaders

    async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Led:
        return await leading.lead(self._handle.shard, duties, worker, lease)

    async def resign(self, duties: Sequence[str], worker: str) -> None:
        await leading.resign(self._handle.shard, duties, worker)

    # -- reading

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await reader.get(self._handle.shard, ids)

    async def find(
        self, wanted: Filter, limit: int = 100, cursor: int | None = None, looks: int | None = None
    ) -> Page:
        return await reader.find(self._handle.shard, wanted, limit, cursor, looks)

    async def counts(self) -> dict[str, dict[State, int]]:
        return await reader.counts(self._handle.shard)

    async def history(self, queue: str, since: float) -> list[Minute]:
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

    # -- looking after it

    async def describe(self) -> StoreFacts:
        return await upkeep.describe(self._handle)

    async def check(self) -> tuple[str, ...]:
        return await check(self._handle.shard)

    async def backup(self, target: Path, progress: Progress | None = None) -> None:  # noqa: ARG002 - the contract's
        raise upkeep.refuse_backup(self._handle, target)

    async def compact(self) -> None:
        await upkeep.compact(self._handle)

    async def copy_jobs(self, after: int = 0, limit: int = 100) -> list[JobCopy]:
        return await copying.copy_jobs(self._handle.shard, after, limit)

    async def copy_ids(self, cursor: str = "") -> IdPage:
        return await copying.copy_ids(self._handle.shard, cursor)

    async def copy_in(self, copies: Copies) -> None:
        await copying.copy_in(self._slow, copies)

    # -- wake-ups

    def listen(self, topics: Iterable[str]) -> RedisListener:
        return self._handle.wakeups.listen(topics)

    def ring(self, topics: Iterable[str]) -> None:
        self._handle.wakeups.ring(topics)
