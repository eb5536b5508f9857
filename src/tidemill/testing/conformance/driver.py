"""Shorthand for the suite: verbs with the arguments a test does not care about filled in."""

# ruff: noqa: S101 - a test suite asserts
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from tidemill.contract.pools import LimitView, PoolView
from tidemill.contract.store import Store
from tidemill.core.changes import Amended, Change
from tidemill.core.claims import Claimed, ClaimRequest, Claims, Heartbeat, Held, Settlement, Share
from tidemill.core.filters import Filter
from tidemill.core.job import Error, Group, Job, NewJob
from tidemill.core.needs import Need
from tidemill.core.outcomes import Answer, Done, Outcome
from tidemill.core.queues import Inserted
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.spending import Observation, Spent, Usage
from tidemill.core.states import State
from tidemill.testing.manual import ManualClock

LEASE = 30.0
OOPS = Error("ValueError", "oops")


def new(job: str, **options: Any) -> NewJob:
    """Payloads are JSON, as everywhere."""
    body = msgspec.json.encode({"of": options.pop("payload", job)})
    return NewJob(id=job, task=options.pop("task", "task"), payload=body, **options)


def need(pool: str, key: str | None = None, **units: float) -> Need:
    return Need(pool, key, units)


def using(pool: str, key: str | None = None, *, well: bool = True, **units: float) -> Spent:
    """A call that came back well and cost that much."""
    return Spent(well=well, usages=(Usage(pool=pool, key=key, units=units),))


def refusing(pool: str, reason: Reason, key: str | None = None, **more: Any) -> Spent:
    """A call the provider refused."""
    refusal = Refusal(reason=reason, **more)
    return Spent(observations=(Observation(pool=pool, key=key, refusal=refusal),))


UNMADE = Spent(made=False)


def ids(jobs: Iterable[Claimed | Job]) -> list[str]:
    return [job.id for job in jobs]


class Driver:
    """One store, its clock, and the claim numbers of the workers a test plays."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.numbers: Counter[str] = Counter()

    async def reopen(self) -> None:
        """As a process does that begins anew."""
        before = self.store
        self.store = await before.another().open()
        await before.close()

    async def add(self, *jobs: NewJob | str, queue: str = "q") -> list[Inserted]:
        """As one group."""
        group = Group(queue, tuple(new(job) if isinstance(job, str) else job for job in jobs))
        return (await self.store.insert([group]))[0]

    def request(
        self,
        worker: str = "w",
        *,
        limit: int = 100,
        shares: Iterable[tuple[str, int]] = (("q", 100),),
        number: int | None = None,
        lease: float = LEASE,
        named: Iterable[str] | None = None,
    ) -> ClaimRequest:
        if number is None:
            self.numbers[worker] += 1
            number = self.numbers[worker]
        return ClaimRequest(
            worker=worker,
            number=number,
            shares=tuple(Share(queue, jobs) for queue, jobs in shares),
            limit=limit,
            lease=lease,
            ids=None if named is None else tuple(named),
        )

    async def claim(self, worker: str = "w", **options: Any) -> Claims:
        return await self.store.claim(self.request(worker, **options))

    async def take(self, worker: str = "w", **options: Any) -> list[Claimed]:
        return (await self.claim(worker, **options)).jobs

    async def take_one(self, worker: str = "w", **options: Any) -> Claimed:
        jobs = await self.take(worker, limit=1, **options)
        assert len(jobs) == 1, "the test expects a job to claim"
        return jobs[0]

    async def settle(
        self, job: Claimed, outcome: Outcome | None = None, spent: Spent | None = None
    ) -> Answer:
        settlement = Settlement(job.id, job.fence, job.claim, outcome or Done(), spent)
        return (await self.store.settle([settlement])).answers[0]

    async def used(self, pool: str, limit: str, key: str | None = None) -> float:
        """Of one limit, as everybody can see it."""
        return (await self.limit(pool, limit, key)).used

    async def limit(self, pool: str, limit: str, key: str | None = None) -> LimitView:
        (found,) = [view for view in (await self.pool(pool, key)).limits if view.name == limit]
        return found

    async def pool(self, pool: str, key: str | None = None) -> PoolView:
        (found,) = [view for view in await self.store.pools() if (view.name, view.key) == (pool, key)]
        return found

    async def beat(
        self, *held: Claimed | Held, worker: str = "w", received: int | None = None, lease: float = LEASE
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """A heartbeat; answers (lost, returned)."""
        listed = tuple(job if isinstance(job, Held) else holding(job) for job in held)
        heard = self.numbers[worker] if received is None else received
        extended = await self.store.extend(
            Heartbeat(worker=worker, received=heard, lease=lease, held=listed, host="host", pid=7)
        )
        return extended.lost, extended.returned

    async def amend(self, change: Change, *jobs: str) -> Amended:
        return await self.store.amend(Filter(ids=jobs), change)

    async def job(self, job: str) -> Job:
        found = (await self.store.get([job]))[0]
        assert found is not None, f"{job} is gone"
        return found

    async def state(self, job: str) -> State | None:
        found = (await self.store.get([job]))[0]
        return None if found is None else found.state

    async def ended(self, *jobs: NewJob | str, queue: str = "q") -> None:
        """Insert jobs and see them done, in their order."""
        await self.add(*jobs, queue=queue)
        for job in await self.take(shares=((queue, 1000),), limit=1000):
            await self.settle(job)


def holding(job: Claimed, **news: Any) -> Held:
    return Held(job=job.id, fence=job.fence, claim=job.claim, **news)
