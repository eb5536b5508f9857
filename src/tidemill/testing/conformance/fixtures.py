"""The fixtures of the conformance suite, and the driver that calls a store with short commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import ModuleType
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tidemill.clock import Clock, Entropy
from tidemill.contract.pools import LimitView, PoolView
from tidemill.contract.store import Store
from tidemill.core.claims import (
    ClaimedJob,
    ClaimRequest,
    ClaimResult,
    Heartbeat,
    HeldJob,
    QueueShare,
    Settlement,
)
from tidemill.core.feedback import Observation, PoolUsage, Reason, Refusal, UsageReport
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error, Job, JobGroup, NewJob
from tidemill.core.needs import Need
from tidemill.core.operator_changes import AmendResult, OperatorChange
from tidemill.core.outcomes import Outcome, Success, WriteAnswer
from tidemill.core.queues import InsertResult
from tidemill.core.states import State
from tidemill.testing.clocks import ManualClock, SeededEntropy

LEASE_SECONDS = 30.0
SAMPLE_ERROR = Error("ValueError", "oops")


def new_job(job: str, **options: Any) -> NewJob:
    """Returns a new job with the id `job`. Its payload is the JSON object `{"of": payload}`; the option
    `payload` is the job id by default."""
    body = msgspec.json.encode({"of": options.pop("payload", job)})
    return NewJob(id=job, task=options.pop("task", "task"), payload=body, **options)


def need(pool: str, key: str | None = None, **units: float) -> Need:
    return Need(pool, key, units)


def usage_of_call(
    pool: str, key: str | None = None, *, is_success: bool = True, **units: float
) -> UsageReport:
    """Returns the usage report of a call that used these units. `is_success=True`: the call succeeded."""
    return UsageReport(is_success=is_success, usages=(PoolUsage(pool=pool, key=key, units=units),))


def refusal_of_call(pool: str, reason: Reason, key: str | None = None, **more: Any) -> UsageReport:
    """Returns the usage report of a call that the provider refused for `reason`."""
    refusal = Refusal(reason=reason, **more)
    return UsageReport(observations=(Observation(pool=pool, key=key, refusal=refusal),))


CALL_NOT_MADE = UsageReport(made=False)


def ids(jobs: Iterable[ClaimedJob | Job]) -> list[str]:
    return [job.id for job in jobs]


class StoreDriver:
    """Calls a store in tests. It has the store, its clock, and the number of the last claim of each simulated
    worker."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.numbers: Counter[str] = Counter()

    async def reopen(self) -> None:
        """Opens a second handle and closes the first, like a restarted process."""
        before = self.store
        self.store = await before.new_handle().open()
        await before.close()

    async def add(self, *jobs: NewJob | str, queue: str = "q") -> list[InsertResult]:
        """Inserts the jobs in one request; returns one result per job. A string is a job with that id."""
        group = JobGroup(queue, tuple(new_job(job) if isinstance(job, str) else job for job in jobs))
        return (await self.store.insert([group]))[0]

    def request(
        self,
        worker: str = "w",
        *,
        limit: int = 100,
        shares: Iterable[tuple[str, int]] = (("q", 100),),
        number: int | None = None,
        lease: float = LEASE_SECONDS,
        named: Iterable[str] | None = None,
    ) -> ClaimRequest:
        if number is None:
            self.numbers[worker] += 1
            number = self.numbers[worker]
        return ClaimRequest(
            worker=worker,
            number=number,
            shares=tuple(QueueShare(queue, jobs) for queue, jobs in shares),
            limit=limit,
            lease=lease,
            ids=None if named is None else tuple(named),
        )

    async def claim(self, worker: str = "w", **options: Any) -> ClaimResult:
        return await self.store.claim(self.request(worker, **options))

    async def take(self, worker: str = "w", **options: Any) -> list[ClaimedJob]:
        return (await self.claim(worker, **options)).jobs

    async def take_one(self, worker: str = "w", **options: Any) -> ClaimedJob:
        jobs = await self.take(worker, limit=1, **options)
        assert len(jobs) == 1, "the test expects a job to claim"
        return jobs[0]

    async def settle(
        self, job: ClaimedJob, outcome: Outcome | None = None, spent: UsageReport | None = None
    ) -> WriteAnswer:
        settlement = Settlement(job.id, job.fence, job.claim, outcome or Success(), spent)
        return (await self.store.settle([settlement])).answers[0]

    async def used(self, pool: str, limit: str, key: str | None = None) -> float:
        """Returns the used units of one limit, as the store's pool view shows them. `limit` is a name such as
        "requests per minute"."""
        return (await self.limit(pool, limit, key)).used

    async def limit(self, pool: str, limit: str, key: str | None = None) -> LimitView:
        (found,) = [view for view in (await self.pool(pool, key)).limits if view.name == limit]
        return found

    async def pool(self, pool: str, key: str | None = None) -> PoolView:
        (found,) = [view for view in await self.store.pools() if (view.name, view.key) == (pool, key)]
        return found

    async def beat(
        self,
        *held: ClaimedJob | HeldJob,
        worker: str = "w",
        received: int | None = None,
        lease: float = LEASE_SECONDS,
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Sends a heartbeat of `worker` that lists the jobs `held`. Returns the ids of listed jobs that the
        worker has lost, and of unlisted jobs that the store takes back."""
        listed = tuple(job if isinstance(job, HeldJob) else held_job(job) for job in held)
        last_received = self.numbers[worker] if received is None else received
        extended = await self.store.extend(
            Heartbeat(worker=worker, received=last_received, lease=lease, held=listed, host="host", pid=7)
        )
        return extended.lost, extended.returned

    async def amend(self, change: OperatorChange, *jobs: str) -> AmendResult:
        return await self.store.amend(Filter(ids=jobs), change)

    async def job(self, job: str) -> Job:
        found = (await self.store.get([job]))[0]
        assert found is not None, f"{job} is gone"
        return found

    async def state(self, job: str) -> State | None:
        found = (await self.store.get([job]))[0]
        return None if found is None else found.state

    async def ended(self, *jobs: NewJob | str, queue: str = "q") -> None:
        """Inserts jobs, claims them and settles each of them as succeeded."""
        await self.add(*jobs, queue=queue)
        for job in await self.take(shares=((queue, 1000),), limit=1000):
            await self.settle(job)


def held_job(job: ClaimedJob, **report: Any) -> HeldJob:
    return HeldJob(job=job.id, fence=job.fence, claim=job.claim, **report)


class CallCounter:
    """Counts the calls of a function. `since` returns how many calls were made since the last call of
    `since`."""

    def __init__(self) -> None:
        self.times = 0

    def since(self) -> int:
        times, self.times = self.times, 0
        return times


def count_calls(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> CallCounter:
    """Returns a counter for the calls of the function `name` in `module`. The function still works as
    before."""
    count, real = CallCounter(), getattr(module, name)

    def counting(*args: Any) -> Any:
        count.times += 1
        return real(*args)

    monkeypatch.setattr(module, name, counting)
    return count


MakeStore = Callable[[Clock, Entropy], Store]
"""(clock, entropy) → a new, empty store that is not open yet."""

Arrive = Callable[[Store, str, str, bytes, bytes], Awaitable[None]]
"""(store, id, task, payload, options): writes an arrival as another program would."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def entropy() -> SeededEntropy:
    return SeededEntropy(1)


@pytest_asyncio.fixture
async def store(make_store: MakeStore, clock: ManualClock, entropy: SeededEntropy) -> AsyncIterator[Store]:
    opened = await make_store(clock, entropy).open()
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def driver(store: Store, clock: ManualClock) -> AsyncIterator[StoreDriver]:
    driver = StoreDriver(store, clock)
    yield driver
    await driver.store.close()
