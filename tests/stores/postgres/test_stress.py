"""Claims and settlements of plain jobs under stress: no job is lost, and none ends twice.

Operators cancel, reprioritise, pause and read. Workers release jobs, stop reporting and are declared
dead. The server ends sessions at any point."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob, ClaimRequest, Heartbeat, HeldJob, QueueShare, Settlement
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error, JobGroup, NewJob
from tidemill.core.operator_changes import CancelJobs, ReprioritiseJobs
from tidemill.core.outcomes import JobRelease, Outcome, RetryLater, Snooze, Success, WriteAnswer
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.stores.postgres import PostgresStore
from tidemill.stores.postgres import connection as connection_file

JOBS = int(os.environ.get("TIDEMILL_CROWD_JOBS", "3000"))
SEED = int(os.environ.get("TIDEMILL_CROWD_SEED", "1"))
WORKERS, QUEUES = 3, ("p", "q")
AT_ONCE = 40
AGAIN = Error("ValueError", "oops")
_END_ONE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'tidemill' AND state <> 'idle' ORDER BY random() LIMIT 1
"""


@pytest.fixture
async def handles(postgres_url: str) -> AsyncIterator[list[Store]]:
    """Returns handles with separate connections, like separate processes."""
    first = await PostgresStore(postgres_url).open()
    opened: list[Store] = [first, *[await first.new_handle().open() for _ in range(WORKERS)]]
    yield opened
    for store in opened:
        await store.close()


@pytest.fixture
async def outsider(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
def rolled_back(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Returns the errors after which verbs were retried."""
    met: list[BaseException] = []
    may_repeat = connection_file.is_retryable

    def noted(error: BaseException, *, repeatable: bool) -> bool:
        met.append(error)
        return may_repeat(error, repeatable=repeatable)

    monkeypatch.setattr(connection_file, "is_retryable", noted)
    return met


class StressWorker:
    """A worker that finishes some jobs at once, keeps some for a while, releases some and forgets some."""

    def __init__(self, store: Store, name: str, chance: random.Random) -> None:
        self._store, self._name, self._chance = store, name, chance
        self._number = 0
        self._held: list[ClaimedJob] = []
        self.done: list[str] = []

    async def work(self, over: asyncio.Event) -> None:
        while not over.is_set():
            chosen = self._chance.sample(self._held, min(len(self._held), self._chance.randint(0, AT_ONCE)))
            await self._settle(chosen)
            if self._chance.random() < 0.1:
                await self._say_what_is_held()

    async def _settle(self, jobs: list[ClaimedJob]) -> None:
        items = [Settlement(job.id, job.fence, job.claim, self._outcome()) for job in jobs]
        self._number += 1
        shares = tuple(QueueShare(queue, AT_ONCE // 2) for queue in QUEUES)
        request = ClaimRequest(
            worker=self._name, number=self._number, shares=shares, limit=AT_ONCE, lease=30.0
        )
        settled = await self._store.settle(items, request if len(self._held) < 4 * AT_ONCE else None)
        for item, answer in zip(items, settled.answers, strict=True):
            if isinstance(item.outcome, Success) and answer in (WriteAnswer.OK, WriteAnswer.AGAIN):
                self.done.append(item.job)
        gone = {job.id for job in jobs}
        self._held = [job for job in self._held if job.id not in gone]
        if settled.claims is not None:
            self._held += settled.claims.jobs

    def _outcome(self) -> Outcome:
        others: list[Outcome] = [
            JobRelease(),
            RetryLater(0.0, AGAIN),
            RetryLater(0.01, AGAIN, 3),
            Snooze(0.0),
        ]
        return self._chance.choice(others) if self._chance.random() < 0.2 else Success()

    async def _say_what_is_held(self) -> None:
        if self._held and self._chance.random() < 0.2:
            self._held.pop()  # forgotten: the heartbeat that does not list it returns it
        held = tuple(HeldJob(job=job.id, fence=job.fence, claim=job.claim) for job in self._held)
        beat = Heartbeat(worker=self._name, received=self._number, lease=30.0, held=held)
        lost = set((await self._store.extend(beat)).lost)
        self._held = [job for job in self._held if job.id not in lost]


class Operators:
    """Operators and other callers."""

    def __init__(self, store: Store, ids: list[str], chance: random.Random) -> None:
        self._store, self._ids, self._chance = store, ids, chance
        self.cancelled: set[str] = set()

    async def ask(self, over: asyncio.Event, killer: asyncpg.Connection | None) -> None:
        verbs: list[Callable[[], Awaitable[None]]] = [
            *(self._cancel, self._reprioritise, self._pause, self._reclaim, self._prune),
            *(self._look, self._count, self._check),
        ]
        while not over.is_set():
            await self._chance.choice(verbs)()
            if killer is not None and self._chance.random() < 0.2:  # else one verb may fail for 5 s in a row
                await killer.execute(_END_ONE)

    def _some(self) -> Filter:
        return Filter(ids=tuple(self._chance.sample(self._ids, min(len(self._ids), 8))))

    async def _cancel(self) -> None:
        if self._chance.random() < 0.2:
            self.cancelled.update((await self._store.amend(self._some(), CancelJobs())).changed)

    async def _reprioritise(self) -> None:
        await self._store.amend(self._some(), ReprioritiseJobs(self._chance.randint(0, 9)))

    async def _pause(self) -> None:
        await self._store.pause(QUEUES[0])
        await self._store.resume(QUEUES[0])

    async def _reclaim(self) -> None:
        await self._store.reclaim([f"w{self._chance.randint(1, WORKERS)}"])

    async def _prune(self) -> None:
        await self._store.prune(10)

    async def _look(self) -> None:
        await self._store.get(self._some().ids or ())
        await self._store.find(Filter(states=(State.RUNNING,)), limit=20)

    async def _check(self) -> None:
        assert await self._store.check() == ()

    async def _count(self) -> None:
        assert sum(sum(of.values()) for of in (await self._store.counts()).values()) == len(self._ids)


async def send(store: Store) -> list[str]:
    kept = QueueSettings(keep_done=Retention(age=3600.0), keep_cancelled=Retention(age=3600.0))
    await store.declare(dict.fromkeys(QUEUES, kept))
    ids = [f"job-{n:06}" for n in range(JOBS)]
    for n in range(0, JOBS, 500):
        jobs = [NewJob(id=id_, task="t", payload=b"1") for id_ in ids[n : n + 500]]
        await store.insert([JobGroup(QUEUES[n // 500 % 2], tuple(jobs))])
    return ids


async def until_all_have_ended(store: Store, over: asyncio.Event) -> None:
    pending = {State.SCHEDULED, State.READY, State.RUNNING}
    while any(of.keys() & pending for of in (await store.counts()).values()):
        pass
    over.set()


@pytest.mark.parametrize("killing", [False, True], ids=["", "killing"])
async def test_i5_plain_jobs_run_once_under_stress(
    handles: list[Store], outsider: asyncpg.Connection, rolled_back: list[BaseException], *, killing: bool
) -> None:
    store, *others = handles
    ids = await send(store)
    over = asyncio.Event()
    hands = [StressWorker(one, f"w{n}", random.Random(SEED + n)) for n, one in enumerate(others)]
    people = Operators(store, ids, random.Random(SEED + WORKERS))
    async with asyncio.TaskGroup() as group:
        for one in hands:
            group.create_task(one.work(over))
        group.create_task(people.ask(over, outsider if killing else None))
        group.create_task(until_all_have_ended(store, over))
    assert await store.check() == ()
    assert not [error for error in rolled_back if isinstance(error, asyncpg.DeadlockDetectedError)]
    assert bool(rolled_back) is killing
    ended = (await store.find(Filter(), limit=JOBS)).jobs
    done = {job.id for job in ended if job.state is State.DONE}
    minutes = [minute for queue in QUEUES for minute in await store.history(queue, 0)]
    assert sum(minute.done for minute in minutes) == len(done), "a job has ended twice"
    if not killing:  # else an answer may have been lost
        runs = Counter(job for one in hands for job in one.done)
        assert runs == Counter(done)
        assert people.cancelled == {job.id for job in ended if job.state is State.CANCELLED}
