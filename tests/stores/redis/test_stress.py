"""Many verbs at once on several connections: afterwards every index agrees with the records, and all jobs
end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from random import Random

import pytest

from tests.servers.redis import Redis
from tests.stores.redis.recount import find_differences
from tidemill.core.batching import BatchPolicy
from tidemill.core.claims import ClaimedJob, ClaimRequest, Heartbeat, HeldJob, QueueShare, Settlement
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error, JobGroup, NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.operator_changes import (
    ArchiveJobs,
    CancelJobs,
    DeleteJobs,
    OperatorChange,
    ReprioritiseJobs,
    RetryJobs,
    RunJobsNow,
)
from tidemill.core.outcomes import Crash, FinalFailure, JobRelease, Outcome, RetryLater, Snooze, Success
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import LIVE
from tidemill.core.unique_keys import Unique
from tidemill.stores.redis import RedisStore

QUEUES = ("a", "b")
ROUNDS = 25
OOPS = Error("ValueError", "oops")
OUTCOMES: tuple[Outcome, ...] = (
    *(Success(b"1"), Success(), RetryLater(0.0, OOPS), RetryLater(0.01, OOPS)),
    *(FinalFailure(OOPS), JobRelease(), Snooze(0.01), Crash(OOPS)),
)
CHANGES: tuple[OperatorChange, ...] = (
    CancelJobs(),
    RetryJobs(),
    RunJobsNow(),
    DeleteJobs(),
    ReprioritiseJobs(1),
    ArchiveJobs(),
)
SHORT = Retention(age=0.05)
SETTINGS = (
    QueueSettings(concurrency=3, max_length=60, keep_done=SHORT),
    QueueSettings(key_concurrency=1, keep_done=SHORT, keep_failed=SHORT),
)


@pytest.fixture
async def stores(redis_url: str, redis_prefix: str) -> AsyncIterator[list[RedisStore]]:
    first = RedisStore(redis_url, prefix=redis_prefix)
    opened = [await store.open() for store in (first, first.new_handle(), first.new_handle())]
    yield opened
    for store in opened:
        await store.close()


class RandomVerbs:
    def __init__(self, seed: int) -> None:
        self._random, self._sent = Random(seed), 0
        self._fences: Counter[str] = Counter()

    async def repeat(self, verb: Callable[[], Awaitable[object]]) -> None:
        for _ in range(ROUNDS):
            await verb()
            await asyncio.sleep(self._random.random() * 0.005)

    async def insert(self, store: RedisStore) -> None:
        jobs = tuple(self._new() for _ in range(self._random.choice((1, 1, 3))))
        await store.insert([JobGroup(self._random.choice(QUEUES), jobs)])

    def _new(self) -> NewJob:
        self._sent += 1
        pick, id_ = self._random.choice, f"{self._sent}"
        keyed = Need("n", key=pick("uv"))
        unique = Unique(pick("pq"), on_conflict=pick(("skip", "replace", "rerun")), period=pick((None, 0.1)))
        kinds: tuple[NewJob, ...] = (
            NewJob(id=id_, task="t", payload=b"1"),
            NewJob(id=id_, task="t", payload=b"1", key=pick("xy"), priority=pick((-1, 0))),
            NewJob(id=id_, task="t", payload=b"1", needs=(Need("m"),), expires=0.05),
            NewJob(id=id_, task="t", payload=b"1", needs=(keyed, Need("m")), key=pick("xy")),
            NewJob(id=id_, task="t", payload=b"1", delay=0.02),
            NewJob(id=id_, task="t", payload=b"1", unique=unique),
            NewJob(id=id_, task="t", payload=b"1", batching=BatchPolicy(max_items=3, linger=0.02)),
        )
        return pick(kinds)

    async def work(self, store: RedisStore, worker: str) -> None:
        held: list[ClaimedJob] = []
        for number in range(1, ROUNDS):
            lease = self._random.choice((0.03, 5.0))
            request = ClaimRequest(worker=worker, number=number, limit=4, lease=lease, shares=shares())
            claims = (await store.settle([self._end(job) for job in held], request)).claims
            assert claims is not None
            for job in claims.jobs:
                assert job.fence > self._fences[job.id], "I5"
                self._fences[job.id] = job.fence
            held = claims.jobs if self._random.random() < 0.9 else []
            listed = (HeldJob(job=job.id, fence=job.fence, claim=job.claim, progress=0.5) for job in held)
            await store.extend(Heartbeat(worker=worker, received=number, lease=0.3, held=tuple(listed)))

    def _end(self, job: ClaimedJob) -> Settlement:
        return Settlement(job.id, job.fence, job.claim, self._random.choice(OUTCOMES))

    async def change(self, store: RedisStore) -> None:
        ids = tuple(f"{max(1, self._sent - self._random.randrange(50))}" for _ in range(5))
        queue = self._random.choice(QUEUES)
        wanted = self._random.choice((Filter(ids=ids), Filter(queue=queue)))
        await store.amend(wanted, self._random.choice(CHANGES), limit=5)
        await store.declare({queue: self._random.choice(SETTINGS)})
        await store.close_pool("m", by="test")
        await store.open_pool("m")

    async def maintain(self, store: RedisStore) -> None:
        await store.reclaim(self._random.choice(((), ("w1",))))
        await store.prune(self._random.choice((3, 1000)))


def shares() -> tuple[QueueShare, ...]:
    return tuple(QueueShare(queue, 4) for queue in QUEUES)


async def drain(store: RedisStore) -> None:
    """Removes all limits and runs the remaining jobs to their end."""
    await store.declare(dict.fromkeys(QUEUES, QueueSettings()))
    number = 0
    while set().union(*(await store.counts()).values()) & LIVE:
        number += 1
        await store.reclaim(("w0", "w1", "w2"))
        request = ClaimRequest(worker="last", number=number, limit=50, lease=9.0, shares=shares())
        held = (await store.claim(request)).jobs
        await store.settle([Settlement(job.id, job.fence, job.claim, Success()) for job in held])


@pytest.mark.parametrize("seed", [1])
async def test_i5_indexes_agree_with_records_after_concurrent_verbs(
    stores: list[RedisStore], redis_server: Redis, seed: int
) -> None:
    one_each = PoolSettings(limits=(Limit.concurrent(1),), keyed=True)
    await stores[0].declare_pools({"m": PoolSettings(limits=(Limit.concurrent(2),)), "n": one_each})
    random_verbs = RandomVerbs(seed)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number, store in enumerate(stores):
            group.create_task(random_verbs.repeat(partial(random_verbs.insert, store)))
            group.create_task(random_verbs.work(store, f"w{number}"))
        group.create_task(random_verbs.repeat(partial(random_verbs.maintain, stores[0])))
        group.create_task(random_verbs.repeat(partial(random_verbs.change, stores[1])))
    root = stores[0]._handle.address.root
    assert find_differences(redis_server, root) == []
    async with asyncio.timeout(20):
        await drain(stores[2])
    assert find_differences(redis_server, root) == []
    assert await stores[0].check() == ()


@pytest.mark.parametrize("key", ["counts", "lane_counts:a", "running_by_key"])
async def test_a_wrong_count_is_noticed(stores: list[RedisStore], redis_server: Redis, key: str) -> None:
    await stores[0].insert([JobGroup("a", (NewJob(id="1", task="t", payload=b"1", key="k"),))])
    root = stores[0]._handle.address.root
    assert find_differences(redis_server, root) == []
    with redis_server.client() as client:
        client.hincrby(f"{root}{key}", "ready:a", 1)
    assert len(find_differences(redis_server, root)) == 1
