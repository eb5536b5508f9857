"""Several handles at once: plain jobs by scripts, other jobs by the engine, on the same queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from itertools import count

import pytest

from tests.servers.redis_keys import RedisKeys
from tidemill.core.claims import ClaimedJob, ClaimRequest, Heartbeat, HeldJob, QueueShare, Settlement
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error, JobGroup, NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.operator_changes import CancelJobs, DeleteJobs, RetryJobs
from tidemill.core.outcomes import JobRelease, RetryLater, Success
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import InsertVerdict, QueueSettings, Retention
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.stores.redis import RedisStore
from tidemill.testing.clocks import ManualClock

JOBS = 60
QUEUES = ("a", "b")
OOPS = Error("ValueError", "oops")


@pytest.fixture
async def stores(redis_url: str, redis_prefix: str) -> AsyncIterator[list[RedisStore]]:
    first = RedisStore(redis_url, prefix=redis_prefix)
    opened = [await store.open() for store in (first, first.new_handle(), first.new_handle())]
    yield opened
    for store in opened:
        await store.close()


def job(name: str, **options: object) -> NewJob:
    return NewJob(id=name, task="t", payload=b"{}", **options)  # type: ignore[arg-type]


def mixed_job(producer: int, number: int) -> NewJob:
    """Returns a job; the kinds alternate with the number."""
    name = f"{producer}-{number}"
    kinds = (
        job(name),
        job(name, key=f"k{number % 3}"),
        job(name, needs=(Need("m"),)),
        job(name, delay=0.001),
        job(name, unique=Unique(f"u{producer}-{number}")),
    )
    return kinds[number % len(kinds)]


class Worker:
    def __init__(self, store: RedisStore, name: str, ran: Counter[str]) -> None:
        self._store, self._name, self._ran = store, name, ran
        self._numbers = count(1)

    def _request(self) -> ClaimRequest:
        shares = tuple(QueueShare(queue, 4) for queue in QUEUES)
        return ClaimRequest(worker=self._name, number=next(self._numbers), limit=8, lease=60.0, shares=shares)

    async def run(self, until: int) -> None:
        held = (await self._store.claim(self._request())).jobs
        while sum(self._ran.values()) < until:
            await self._store.extend(self._heartbeat(held))
            settled = await self._store.settle([self._end(job) for job in held], self._request())
            assert set(settled.answers) <= {"ok"}, "no other worker holds them"
            assert settled.claims is not None
            held = settled.claims.jobs
        await self._store.settle([Settlement(job.id, job.fence, job.claim, JobRelease()) for job in held])

    def _end(self, job: ClaimedJob) -> Settlement:
        """Some jobs fail at their first attempt, and some are released."""
        outcome = Success(b"1")
        if job.attempt == 1 and job.id.endswith("7"):
            return Settlement(job.id, job.fence, job.claim, RetryLater(0.0, OOPS))
        self._ran[job.id] += 1
        return Settlement(job.id, job.fence, job.claim, outcome)

    def _heartbeat(self, held: list[ClaimedJob]) -> Heartbeat:
        listed = tuple(
            HeldJob(job=job.id, fence=job.fence, claim=job.claim, progress=0.5) for job in held[:1]
        )
        listed += tuple(HeldJob(job=job.id, fence=job.fence, claim=job.claim) for job in held[1:])
        return Heartbeat(worker=self._name, received=0, lease=60.0, held=listed)


async def test_i1_i5_every_job_runs_once_by_script_or_engine(stores: list[RedisStore]) -> None:
    pool = PoolSettings(limits=(Limit.concurrent(4),))
    await stores[0].declare_pools({"m": pool})
    await stores[0].declare({"a": QueueSettings(key_concurrency=2), "b": QueueSettings(concurrency=6)})
    ran: Counter[str] = Counter()

    async def produce(store: RedisStore, producer: int) -> None:
        for number in range(JOBS):
            group = JobGroup(QUEUES[number % 2], (mixed_job(producer, number),))
            ((inserted,),) = await store.insert([group])
            assert inserted.verdict is InsertVerdict.ACCEPTED

    total = JOBS * len(stores)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for producer, store in enumerate(stores):
            group.create_task(produce(store, producer))
            group.create_task(Worker(store, f"w{producer}", ran).run(total))
    assert set(ran.values()) == {1}
    assert len(ran) == total
    counts = await stores[0].counts()
    assert sum(states.get(State.DONE, 0) for states in counts.values()) == total
    assert await stores[0].check() == ()


async def test_j12_a_limit_holds_for_scripts_and_the_engine_at_once(stores: list[RedisStore]) -> None:
    await stores[0].declare({"a": QueueSettings(max_length=30)})

    async def produce(store: RedisStore, producer: int) -> list[InsertVerdict]:
        groups = [JobGroup("a", (mixed_job(producer, number),)) for number in range(0, JOBS, 5)]
        groups += [JobGroup("a", (mixed_job(producer, number),)) for number in range(1, JOBS, 5)]
        answers = await asyncio.gather(*(store.insert([group]) for group in groups))
        return [inserted.verdict for ((inserted,),) in answers]

    found = await asyncio.gather(*(produce(store, producer) for producer, store in enumerate(stores)))
    verdicts = Counter(verdict for each in found for verdict in each)
    assert verdicts == {InsertVerdict.ACCEPTED: 30, InsertVerdict.FULL: 3 * 24 - 30}
    assert (await stores[0].counts())["a"] == {State.READY: 30}


async def test_i11_one_of_many_requests_with_a_key_becomes_a_job(stores: list[RedisStore]) -> None:
    wanted = [JobGroup("a", (job(f"{n}", unique=Unique("feed")),)) for n in range(24)]
    answers = await asyncio.gather(*(stores[n % 3].insert([group]) for n, group in enumerate(wanted)))
    verdicts = Counter(inserted.verdict for ((inserted,),) in answers)
    assert verdicts == {InsertVerdict.ACCEPTED: 1, InsertVerdict.EXISTING: 23}


async def test_j80_no_key_is_left_after_all_jobs_are_pruned(
    stores: list[RedisStore], redis_keys: RedisKeys
) -> None:
    """Queues stay known, and so do the shard's counters; everything else is deleted with its jobs."""
    store = stores[0]
    await store.insert([JobGroup("a", tuple(mixed_job(0, number) for number in range(0, JOBS, 5)))])
    await store.insert([JobGroup("a", (job("k", key="x", expires=60.0), job("s", delay=60.0)))])
    held = (
        await store.claim(
            ClaimRequest(worker="w", number=1, limit=3, lease=9.0, shares=(QueueShare("a", 3),))
        )
    ).jobs
    await store.settle([Settlement(one.id, one.fence, one.claim, RetryLater(0.0, OOPS)) for one in held])
    await store.amend(Filter(), CancelJobs())
    await store.amend(Filter(), RetryJobs())
    await store.amend(Filter(), DeleteJobs())
    left = {key.rpartition("}:")[2] for key in redis_keys.left_over()}
    known = {
        "shard",
        "queues",
        "counts",
        "history:a",
        "history_minutes",
        "pages",
        "known_ids",
        "known_ids_expiry",
    }
    assert left <= known | {"workers", "worker_leases", "claim_numbers"}
    assert await store.check() == ()


async def test_j81_a_key_that_was_held_for_a_period_goes_with_its_job(
    redis_url: str, redis_prefix: str, redis_keys: RedisKeys
) -> None:
    clock = ManualClock()
    store = await RedisStore(redis_url, prefix=redis_prefix, clock=clock).open()
    await store.declare({"a": QueueSettings(keep_done=Retention(age=1.0))})
    await store.insert([JobGroup("a", (job("1", unique=Unique("feed", period=60.0)),))])
    request = ClaimRequest(worker="w", number=1, limit=1, lease=9.0, shares=(QueueShare("a", 1),))
    (held,) = (await store.claim(request)).jobs
    await store.settle([Settlement(held.id, held.fence, held.claim, Success(None))])
    clock.advance(30.0)
    assert (await store.prune()).pruned == 0
    clock.advance(31.0)
    assert (await store.prune()).pruned == 1
    assert not [key for key in redis_keys.left_over() if ":unique:" in key]
    ((again,),) = await store.insert([JobGroup("a", (job("2", unique=Unique("feed")),))])
    assert again.verdict is InsertVerdict.ACCEPTED
    await store.close()
