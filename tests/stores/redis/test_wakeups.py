"""Wake-ups over Redis: what the suite of all stores cannot see (W1 … W4, I23)."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.servers.keys import Keys
from tests.servers.program import HOST
from tests.servers.proxy import Proxy
from tests.servers.redis import Redis
from tests.stores.redis.conftest import Connect
from tidemill.contract.wakeups import job_topic, queue_topic, worker_topic
from tidemill.stores.redis.handle import Handle
from tidemill.stores.redis.wakeups import RedisListener

AT_MOST, QUIET = 5.0, 0.05
QUEUE = queue_topic("q")


async def parked(handle: Handle, *topics: str) -> RedisListener:
    """Armed, and known to the server."""
    listener = handle.wakeups.listen(topics)
    listener.arm()
    await handle.shard.read_clock()
    return listener


async def test_w3_a_ring_wakes_one_of_a_queue_the_longest_parked(connect: Connect) -> None:
    handles = [await connect() for _ in range(3)]
    listeners = [await parked(handle, QUEUE) for handle in handles]
    for number, listener in enumerate(listeners):
        handles[-1].wakeups.ring([QUEUE])
        assert await listener.wait(AT_MOST), number
        assert not any([await later.wait(QUIET) for later in listeners[number + 1 :]])


@pytest.mark.parametrize("topic", [job_topic("a"), worker_topic("w")])
async def test_w4_a_ring_wakes_everybody_who_waits_for_a_job_or_a_worker(
    connect: Connect, topic: str
) -> None:
    handles = [await connect() for _ in range(3)]
    listeners = [await parked(handle, topic) for handle in handles]
    handles[0].wakeups.ring([topic])
    assert all(await asyncio.gather(*(listener.wait(AT_MOST) for listener in listeners)))


async def test_w3_who_died_is_passed_over(connect: Connect, redis_server: Redis) -> None:
    """A killed process leaves its listener parked; its ring must wake somebody else."""
    async with Proxy(redis_server.port) as proxy:
        dead = await connect(f"redis://{HOST}:{proxy.port}")
        await parked(dead, QUEUE)
        proxy.hold()
        proxy.forget()
        alive = await connect()
        listener = await parked(alive, QUEUE)
        alive.wakeups.ring([QUEUE])
        assert await listener.wait(AT_MOST)
        proxy.reset()
        await dead.close()


async def test_w2_nothing_is_left_of_who_waits_no_more(connect: Connect, redis_keys: Keys) -> None:
    one, other = await connect(), await connect()
    listener = await parked(one, QUEUE, job_topic("a"))
    await parked(other, job_topic("a"))
    listener.disarm()
    await one.shard.read_clock()
    assert sorted(redis_keys.left_over()) == _under(redis_keys, "awaited", "parked:job:a", "shard")
    await other.close()
    assert redis_keys.left_over() == _under(redis_keys, "shard")


async def test_w2_what_a_killed_process_leaves_goes_by_itself(handle: Handle) -> None:
    await parked(handle, QUEUE, job_topic("a"))
    for name in (f"parked:{QUEUE}", "parked:job:a", "awaited"):
        assert 0 < await handle.shard.ask("TTL", handle.shard.key(name)) <= 3600, name


async def test_w1_a_flush_of_the_scripts_loses_no_ring(handle: Handle) -> None:
    await handle.shard.ask("SCRIPT", "FLUSH")
    listener = await parked(handle, QUEUE)
    handle.wakeups.ring([QUEUE])
    assert await listener.wait(AT_MOST)


async def test_w1_a_lost_bell_is_hung_up_again_and_rings_as_a_precaution(
    connect: Connect, redis_server: Redis
) -> None:
    async with Proxy(redis_server.port) as proxy:
        handle = await connect(f"redis://{HOST}:{proxy.port}")
        listener = await parked(handle, QUEUE)
        proxy.reset()
        assert await listener.wait(AT_MOST), "something may have been missed"
        listener = await parked(handle, QUEUE)
        await _rung_through(handle, listener)
        await handle.close()


async def test_i23_without_a_bell_everything_else_works(connect: Connect) -> None:
    """A user who may hear no channel: wake-ups are late, which is said, and nothing else."""
    with Redis() as server:
        with server.client() as client:
            client.acl_setuser("deaf", enabled=True, nopass=True, keys="*", commands=["+@all"])
        handle = await connect(f"redis://deaf:any@{HOST}:{server.port}")
        listener = await parked(handle, QUEUE)
        handle.wakeups.ring([QUEUE])
        assert not await listener.wait(QUIET)
        (warning,) = handle.warnings()
        assert "cannot be woken" in warning
        assert "NOPERM" in warning
        await handle.close()


async def test_a_wake_up_takes_less_than_a_few_milliseconds(connect: Connect) -> None:
    """0.4 ms here alone; the bound is for a machine that does eight things at once."""
    ringing, waiting = await connect(), await connect()
    took = []
    for _ in range(50):
        listener = await parked(waiting, QUEUE)
        began = time.perf_counter()
        ringing.wakeups.ring([QUEUE])
        assert await listener.wait(AT_MOST)
        took.append(time.perf_counter() - began)
    assert sorted(took)[25] < 0.01


async def test_an_idle_handle_asks_nothing(connect: Connect, redis_server: Redis) -> None:
    """Whoever is parked costs the server no commands."""
    handle = await connect()
    listener = await parked(handle, QUEUE)
    with redis_server.client() as client:
        before = client.info("stats")["total_commands_processed"]
        assert not await listener.wait(1.0)
        after = client.info("stats")["total_commands_processed"]
    assert after - before <= 2


async def _rung_through(handle: Handle, listener: RedisListener) -> None:
    """Rung over the new connection, once it is there."""
    async with asyncio.timeout(AT_MOST):
        while True:
            handle.wakeups.ring([QUEUE])
            if await listener.wait(QUIET):
                return
            listener.arm()


def _under(keys: Keys, *names: str) -> list[str]:
    return [f"{{{keys.prefix}}}:{name}" for name in names]
