"""Sentinels and a Cluster: the store follows its primary, and no fence is given twice (I5)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.servers.program import HOST, free_port
from tests.servers.redis import Redis
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_sentinel import RedisSentinel
from tests.stores.redis.conftest import Connect
from tidemill.contract.coordination import queue_topic
from tidemill.core.claims import ClaimedJob, ClaimRequest, QueueShare, Settlement
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.outcomes import Success, WriteAnswer
from tidemill.errors import ConfigurationError, StoreUnavailable
from tidemill.stores.redis import RedisStore
from tidemill.stores.redis.address import parse_url
from tidemill.stores.redis.handle import RedisHandle
from tidemill.stores.redis.scripts import LuaScript

FENCE = LuaScript("fence", "return redis.call('HINCRBY', KEYS[1] .. 'shard', 'fence', 1)")
FENCE_JUMP = 1_000_000
QUEUE = queue_topic("q")


async def fence(handle: RedisHandle) -> int:
    return int(await handle.shard.run(FENCE, repeatable=True))


async def test_i5_a_restart_makes_the_fence_jump(connect: Connect) -> None:
    """The last acknowledged writes may be lost, so the fences of that time are not given again."""
    with Redis() as server:
        handle = await connect(server.url)
        with server.client() as client:
            given = await fence(handle)
            client.save()
        lost = [await fence(handle) for _ in range(10)]
        server.kill()
        server.start()
        assert await fence(handle) > max(lost) > given
        await handle.close()


async def test_i5_a_second_handle_does_not_jump(connect: Connect) -> None:
    one = await connect()
    first = await fence(one)
    assert await fence(await connect()) == first + 1


@pytest.mark.alone
async def test_i5_i6_a_claim_that_a_failover_lost(redis_prefix: str) -> None:
    """Sentinels name the new primary, which does not know the last claim.

    Its holder is refused, and no other claim gets the same fence."""
    with RedisSentinel() as watched:
        sentinel = watched.sentinels[0].port
        url = f"redis+sentinel://{HOST}:{free_port()},{HOST}:{sentinel}/{watched.name}"
        store = await RedisStore(url, prefix=redis_prefix).open()
        await store.insert([JobGroup("q", (NewJob(id="a", task="t", payload=b"{}"),))])
        listener = store.listen([QUEUE])
        listener.arm()
        await store.read_clock()
        with watched.primary.client() as client:
            client.wait(1, 1000)
            # Without its replica, the primary continues for a while; these claims are lost.
            watched.replica.pause()
            client.client_kill_filter(_type="slave")
        (lost,) = (await store.claim(request("first"))).jobs
        watched.primary.kill()
        watched.replica.resume()
        watched.primary, watched.replica = watched.replica, watched.primary
        (again,) = await _claim_after_failover(store)
        assert again.fence == lost.fence + FENCE_JUMP, "the claim was lost"
        assert await settle(store, lost) == [WriteAnswer.STALE]
        assert await settle(store, again) == [WriteAnswer.OK]
        assert await settle(store, lost) == [WriteAnswer.STALE], "also when the job has ended"
        assert await listener.wait(5.0), "a wake-up may have been lost"
        assert await store.check() == ()
        await store.close()


def request(worker: str) -> ClaimRequest:
    return ClaimRequest(worker=worker, number=1, limit=1, lease=30.0, shares=(QueueShare("q", 1),))


async def settle(store: RedisStore, job: ClaimedJob) -> list[WriteAnswer]:
    return list((await store.settle([Settlement(job.id, job.fence, job.claim, Success())])).answers)


async def _claim_after_failover(store: RedisStore) -> Sequence[ClaimedJob]:
    """Claims again until the failover is over; each call fails in time."""
    async with asyncio.timeout(40):
        while True:
            try:
                return (await store.claim(request("second"))).jobs
            except StoreUnavailable:
                continue


async def test_an_unknown_sentinel_service_is_reported() -> None:
    with RedisSentinel() as watched:
        url = f"redis+sentinel://{HOST}:{watched.sentinels[0].port}/other?timeout=1"
        with pytest.raises(ConfigurationError, match="watch no service 'other'"):
            await RedisHandle(parse_url(url)).open()


async def test_unreachable_sentinels_are_reported() -> None:
    url = f"redis+sentinel://{HOST}:{free_port()},{HOST}:{free_port()}/main?timeout=0.3"
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await RedisHandle(parse_url(url)).open()


@pytest.mark.parametrize("number", range(3))
async def test_a_cluster_names_the_node_of_the_slot(redis_cluster: RedisCluster, number: int) -> None:
    """The URL may name any node."""
    handle = RedisHandle(
        parse_url(f"redis+cluster://{HOST}:{redis_cluster.nodes[number].port}", f"c{number}")
    )
    await handle.open()
    assert handle.shard.connector.node is not None
    assert handle.shard.connector.node.port == redis_cluster.node_of(handle.shard.root).port
    assert await fence(handle) == 1
    await handle.close()


async def test_i5_a_slot_that_moves_is_followed(redis_cluster: RedisCluster) -> None:
    handle = RedisHandle(parse_url(f"redis+cluster://{HOST}:{redis_cluster.nodes[0].port}", "moving"))
    await handle.open()
    given = await fence(handle)
    listener = handle.wakeups.listen([QUEUE])
    root = handle.shard.root
    was = redis_cluster.node_of(root)
    to = next(node for node in redis_cluster.nodes if node is not was)
    await asyncio.to_thread(redis_cluster.move, root, to)
    assert await fence(handle) > given
    assert handle.shard.connector.node is not None
    assert handle.shard.connector.node.port == to.port
    async with asyncio.timeout(10):
        listener.arm()
        while not await listener.wait(0.05):
            handle.wakeups.wake([QUEUE])
    await handle.close()


async def test_a_node_of_a_cluster_is_not_a_single_server(redis_cluster: RedisCluster) -> None:
    owner = redis_cluster.node_of("{single}:")
    other = next(node for node in redis_cluster.nodes if node is not owner)
    with pytest.raises(ConfigurationError, match=r"redis\+cluster://"):
        await RedisHandle(parse_url(other.url, "single")).open()


async def test_a_single_server_is_not_a_cluster(redis_server: Redis) -> None:
    with pytest.raises(ConfigurationError, match="not part of a Cluster"):
        await RedisHandle(parse_url(f"redis+cluster://{HOST}:{redis_server.port}")).open()


async def test_a_cluster_without_a_node_for_the_slot_is_refused(redis_cluster: RedisCluster) -> None:
    handle = RedisHandle(
        parse_url(f"redis+cluster://{HOST}:{redis_cluster.nodes[0].port}?timeout=3", "nobody")
    )
    owner = redis_cluster.node_of("{nobody}:")
    with owner.client() as client:
        slot = client.execute_command("CLUSTER KEYSLOT", "{nobody}:")
    for node in redis_cluster.nodes:
        with node.client() as client:
            client.execute_command("CLUSTER DELSLOTS", slot)
    try:
        with pytest.raises(StoreUnavailable, match=r"no node of the Cluster has the slot|CLUSTERDOWN"):
            await handle.open()
    finally:
        with owner.client() as client:
            client.execute_command("CLUSTER ADDSLOTS", slot)
