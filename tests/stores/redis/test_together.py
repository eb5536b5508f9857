"""Several handles at once: plain jobs by scripts, the others by look and commit, on the same queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from itertools import count

import pytest

from tests.servers.keys import Keys
from tidemill.core.changes import Cancel, Delete, RetryNow
from tidemill.core.claims import Claimed, ClaimRequest, Heartbeat, Held, Settlement, Share
from tidemill.core.filters import Filter
from tidemill.core.job import Error, Group, NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.outcomes import Done, Release, Retrying
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import QueueSettings, Retention, Verdict
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique
from tidemill.stores.redis import RedisStore
from tidemill.testing.manual import ManualClock

JOBS = 60
QUEUES = ("a", "b")
OOPS = Error("ValueError", "oops")


@pytest.fixture
async def stores(redis_url: str, redis_prefix: str) -> AsyncIterator[list[RedisStore]]:
    first = RedisStore(redis_url, prefix=redis_prefix)
    opened = [await store.open() for store in (first, first.another(), first.another())]
    yield opened
    for store in opened:
        await store.close()


def job(name: str, **options: object) -> NewJob:
    return NewJob(id=name, task="t", payload=b"{}", **options)  # type: ignore[arg-type]


def some(who: int, number: int) -> NewJob:
    """Of every kind a few."""
    name = f"{who}-{number}"
    kinds = (
        job(name),
        job(name, key=f"k{number % 3}"),
        job(name, needs=(Need("m"),)),
        job(name, delay=0.001),
        job(name, unique=Unique(f"u{who}-{number}")),
    )
    return kinds[number % len(kinds)]


class Worker:
    def __init__(self, store: RedisStore, name: str, ran: Counter[str]) -> None:
        self._store, self._name, self._ran = store, name, ran
        self._numbers = count(1)

    def _request(self) -> ClaimRequest:
        shares = tuple(Share(queue, 4) for queue in QUEUES)
        return ClaimRequest(worker=self._name, number=next(self._numbers), limit=8, lease=60.0, shares=shares)

    async def run(self, until: int) -> None:
        held = (await self._store.claim(self._request())).jobs
        while sum(self._ran.values()) < until:
            await self._store.extend(self._beat(held))
            settled = await self._store.settle([self._end(job) for job in held], self._request())
            assert set(settled.answers) <= {"ok"}, "nobody else holds them"
            assert settled.claims is not None
            held = settled.claims.jobs
        await self._store.settle([Settlement(job.id, job.fence, job.claim, Release()) for job in held])

    def _end(self, job: Claimed) -> Settlement:
        """The first attempt of some fails, and some are given back."""
        outcome = Done(b"1")
        if job.attempt == 1 and job.id.endswith("7"):
            return Settlement(job.id, job.fence, job.claim, Retrying(0.0, OOPS))
        self._ran[job.id] += 1
        return Settlement(job.id, job.fence, job.claim, outcome)

    def _beat(self, held: list[Claimed]) -> Heartbeat:
        listed = tuple(Held(job=job.id, fence=job.fence, claim=job.claim, progress=0.5) for job in held[:1])
        listed += tuple(Held(job=job.id, fence=job.fence, claim=job.claim) for job in held[1:])
        return Heartbeat(worker=self._name, received=0, lease=60.0, held=listed)


async def test_i1_i5_every_job_runs_once_whichever_way_it_goes(stores: list[RedisStore]) -> None:
    pool = PoolSettings(limits=(Limit.concurrent(4),))
    await stores[0].declare_pools({"m": pool})
    await stores[0].declare({"a": QueueSettings(key_concurrency=2), "b": QueueSettings(concurrency=6)})
    ran: Counter[str] = Counter()

    async def produce(store: RedisStore, who: int) -> None:
        for number in range(JOBS):
            group = Group(QUEUES[number % 2], (some(who, number),))
            ((inserted,),) = await store.insert([group])
            assert inserted.verdict is Verdict.ACCEPTED

    total = JOBS * len(stores)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for who, store in enumerate(stores):
            group.create_task(produce(store, who))
            group.create_task(Worker(store, f"w{who}", ran).run(total))
    assert set(ran.values()) == {1}
    assert len(ran) == total
    counts = await stores[0].counts()
    assert sum(states.get(State.DONE, 0) for states in counts.values()) == total
    assert await stores[0].check() == ()


async def test_j12_a_limit_holds_for_scripts_and_steps_at_once(stores: list[RedisStore]) -> None:
    await stores[0].declare({"a": QueueSettings(max_length=30)})

    async def produce(store: RedisStore, who: int) -> list[Verdict]:
        groups = [Group("a", (some(who, number),)) for number in range(0, JOBS, 5)]
        groups += [Group("a", (some(who, number),)) for number in range(1, JOBS, 5)]
        answers = await asyncio.gather(*(store.insert([group]) for group in groups))
        return [inserted.verdict for ((inserted,),) in answers]

    found = await asyncio.gather(*(produce(store, who) for who, store in enumerate(stores)))
    verdicts = Counter(verdict for each in found for verdict in each)
    assert verdicts == {Verdict.ACCEPTED: 30, Verdict.FULL: 3 * 24 - 30}
    assert (await stores[0].counts())["a"] == {State.READY: 30}


async def test_i11_one_of_many_requests_with_a_key_becomes_a_job(stores: list[RedisStore]) -> None:
    wanted = [Group("a", (job(f"{n}", unique=Unique("feed")),)) for n in range(24)]
    answers = await asyncio.gather(*(stores[n % 3].insert([group]) for n, group in enumerate(wanted)))
    verdicts = Counter(inserted.verdict for ((inserted,),) in answers)
    assert verdicts == {Verdict.ACCEPTED: 1, Verdict.EXISTING: 23}


async def test_j80_when_all_is_gone_nothing_is_left(stores: list[RedisStore], redis_keys: Keys) -> None:
    """A queue is known for good, and so are the numbers of the shard; all else goes with its jobs."""
    store = stores[0]
    await store.insert([Group("a", tuple(some(0, number) for number in range(0, JOBS, 5)))])
    await store.insert([Group("a", (job("k", key="x", expires=60.0), job("s", delay=60.0)))])
    held = (
        await store.claim(ClaimRequest(worker="w", number=1, limit=3, lease=9.0, shares=(Share("a", 3),)))
    ).jobs
    await store.settle([Settlement(one.id, one.fence, one.claim, Retrying(0.0, OOPS)) for one in held])
    await store.amend(Filter(), Cancel())
    await store.amend(Filter(), RetryNow())
    await store.amend(Filter(), Delete())
    left = {key.rpartition("}:")[2] for key in redis_keys.left_over()}
    known = {"shard", "queues", "counts", "history:a", "minutes", "pages", "remembered", "forget"}
    assert left <= known | {"workers", "alive", "numbers"}
    assert await store.check() == ()


async def test_j81_a_key_that_was_held_for_a_period_goes_with_its_job(
    redis_url: str, redis_prefix: str, redis_keys: Keys
) -> None:
    clock = ManualClock()
    store = await RedisStore(redis_url, prefix=redis_prefix, clock=clock).open()
    await store.declare({"a": QueueSettings(keep_done=Retention(age=1.0))})
    await store.insert([Group("a", (job("1", unique=Unique("feed", period=60.0)),))])
    request = ClaimRequest(worker="w", number=1, limit=1, lease=9.0, shares=(Share("a", 1),))
    (held,) = (await store.claim(request)).jobs
    await store.settle([Settlement(held.id, held.fence, held.claim, Done(None))])
    clock.advance(30.0)
    assert (await store.prune()).pruned == 0
    clock.advance(31.0)
    assert (await store.prune()).pruned == 1
    assert not [key for key in redis_keys.left_over() if ":unique:" in key]
    ((again,),) = await store.insert([Group("a", (job("2", unique=Unique("feed")),))])
    assert again.verdict is Verdict.ACCEPTED
    await store.close()
