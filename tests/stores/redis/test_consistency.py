"""U2: check finds damage, and never reports damage in a store that is in use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.servers.redis import Redis
from tidemill.core.claims import ClaimRequest, QueueShare, Settlement
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.outcomes import Success
from tidemill.core.pools import PoolSettings
from tidemill.stores.redis import RedisStore


@pytest.fixture
async def store(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisStore]:
    opened = await RedisStore(redis_url, prefix=redis_prefix).open()
    yield opened
    await opened.close()


async def add(store: RedisStore, *ids: str, delay: float = 0.0) -> None:
    jobs = tuple(NewJob(id=id_, task="t", payload=b"{}", delay=delay) for id_ in ids)
    await store.insert([JobGroup("q", jobs)])


async def create_jobs(store: RedisStore) -> None:
    """a is done, b runs, c is ready, d is scheduled."""
    await add(store, *"abc")
    await add(store, "d", delay=60.0)
    first, _ = (await store.claim(request(1, limit=2))).jobs
    await store.settle([Settlement(first.id, first.fence, first.claim, Success(b"1"))])


def request(number: int, limit: int = 10) -> ClaimRequest:
    return ClaimRequest(worker="w", number=number, limit=limit, lease=30.0, shares=(QueueShare("q", limit),))


async def test_u2_check_reports_no_damage_in_a_used_store(store: RedisStore) -> None:
    assert await store.check() == ()
    await create_jobs(store)
    assert await store.check() == ()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("ZREMRANGEBYRANK ready:q 0 -1", "job 'c' is ready but is not found as such in 'ready:q'"),
        (
            "ZREMRANGEBYRANK scheduled:q 0 -1",
            "job 'd' is scheduled but is not found as such in 'scheduled:q'",
        ),
        ("DEL running:q", "job 'b' is running but is not found as such in 'running:q'"),
        ("DEL held:w", "job 'b' is running but is not found as such in 'held:w'"),
        ("ZREMRANGEBYRANK done:q 0 -1", "job 'a' is done but is not found as such in 'done:q'"),
        ("HDEL page:0 2", "job 'b' is running but is not found as such in 'page:0'"),
        ("HDEL jobs c", "'ready:q' lists the job 'c', which does not exist"),
        ("HINCRBY counts ready:q 1", "queue 'q' counts 2 ready jobs but has 1"),
        ("HINCRBY counts waiting:q 1", "all queues together count 5 jobs but there are 4"),
        ("RPUSH attempts:gone {}", "'attempts:gone' remains of the job 'gone', which is gone"),
    ],
)
async def test_u2_damage_is_named(
    store: RedisStore, redis_server: Redis, redis_prefix: str, damage: str, message: str
) -> None:
    await create_jobs(store)
    command, key, *words = damage.split()
    with redis_server.client() as client:
        client.execute_command(command, f"{{{redis_prefix}}}:{key}", *words)
    found = await store.check()
    assert any(message in sentence for sentence in found), found


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DEL lane_counts:q", "queue 'q' counts 0 lanes in groups but has 1"),
        ("DEL open_lanes:1:q:", "queue 'q' counts 0 lanes that are open or blocked but has 1"),
        ('HINCRBY open_reservations ["m",null] 1', "m counts 2 open reservations but has 1"),
        ("DEL open_reservations", "m counts 0 open reservations but has 1"),
    ],
)
async def test_u2_damage_to_lanes_and_pools_is_named(
    store: RedisStore, redis_server: Redis, redis_prefix: str, damage: str, message: str
) -> None:
    """a runs with units of a pool, b is ready in the lane of its key."""
    await store.declare_pools({"m": PoolSettings(limits=(Limit.requests(5, per="minute"),))})
    await store.insert(
        [JobGroup("q", (NewJob(id="a", task="t", payload=b"{}", needs=(Need("m", None, {}),)),))]
    )
    assert len((await store.claim(request(1, limit=1))).jobs) == 1
    await store.insert([JobGroup("q", (NewJob(id="b", task="t", payload=b"{}", key="k"),))])
    assert await store.check() == ()
    command, key, *words = damage.split()
    with redis_server.client() as client:
        client.execute_command(command, f"{{{redis_prefix}}}:{key}", *words)
    assert message in await store.check()


async def test_u2_a_job_in_the_wrong_index_is_reported(
    store: RedisStore, redis_server: Redis, redis_prefix: str
) -> None:
    await create_jobs(store)
    with redis_server.client() as client:
        key = f"{{{redis_prefix}}}:scheduled:q"
        client.execute_command("ZUNIONSTORE", f"{{{redis_prefix}}}:done:q", 1, key)
    assert "'done:q' lists the job 'd', which is scheduled" in await store.check()


async def test_u2_check_reports_no_damage_while_jobs_run(store: RedisStore) -> None:
    """The checks read no common snapshot, and still report nothing wrong."""
    await add(store, *(f"j{number}" for number in range(500)))
    at_work = asyncio.create_task(_work(store))
    while not at_work.done():
        assert await store.check() == ()
    assert await at_work == 500


async def _work(store: RedisStore) -> int:
    done = 0
    for number in range(1, 200):
        jobs = (await store.claim(request(number, limit=5))).jobs
        if not jobs:
            break
        await store.settle([Settlement(job.id, job.fence, job.claim, Success()) for job in jobs])
        done += len(jobs)
    return done
