"""Wake-ups over Redis: cases that the conformance suite cannot see (W1 to W4, I23)."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.servers.program import HOST
from tests.servers.proxy import Proxy
from tests.servers.redis import Redis
from tests.servers.redis_keys import RedisKeys
from tests.stores.redis.conftest import Connect
from tidemill.contract.coordination import job_topic, queue_topic, worker_topic
from tidemill.stores.redis.handle import RedisHandle
from tidemill.stores.redis.wakeups import RedisListener

AT_MOST, QUIET = 5.0, 0.05
QUEUE = queue_topic("q")


async def arm_listener(handle: RedisHandle, *topics: str) -> RedisListener:
    """Returns a listener that the server has registered."""
    listener = handle.wakeups.listen(topics)
    listener.arm()
    await handle.shard.read_clock()
    return listener


async def test_w3_a_wake_up_reaches_the_oldest_listener_of_a_queue(connect: Connect) -> None:
    handles = [await connect() for _ in range(3)]
    listeners = [await arm_listener(handle, QUEUE) for handle in handles]
    for number, listener in enumerate(listeners):
        handles[-1].wakeups.wake([QUEUE])
        assert await listener.wait(AT_MOST), number
        assert not any([await later.wait(QUIET) for later in listeners[number + 1 :]])


@pytest.mark.parametrize("topic", [job_topic("a"), worker_topic("w")])
async def test_w4_all_listeners_of_a_job_or_worker_wake(connect: Connect, topic: str) -> None:
    handles = [await connect() for _ in range(3)]
    listeners = [await arm_listener(handle, topic) for handle in handles]
    handles[0].wakeups.wake([topic])
    assert all(await asyncio.gather(*(listener.wait(AT_MOST) for listener in listeners)))


async def test_w3_dead_listeners_are_skipped(connect: Connect, redis_server: Redis) -> None:
    """A killed process leaves its listener registered; the wake-up must reach another listener."""
    async with Proxy(redis_server.port) as proxy:
        dead = await connect(f"redis://{HOST}:{proxy.port}")
        await arm_listener(dead, QUEUE)
        proxy.hold()
        proxy.forget()
        alive = await connect()
        listener = await arm_listener(alive, QUEUE)
        alive.wakeups.wake([QUEUE])
        assert await listener.wait(AT_MOST)
        proxy.reset()
        await dead.close()


async def test_w2_a_disarmed_listener_leaves_no_key(connect: Connect, redis_keys: RedisKeys) -> None:
    one, other = await connect(), await connect()
    listener = await arm_listener(one, QUEUE, job_topic("a"))
    await arm_listener(other, job_topic("a"))
    listener.disarm()
    await one.shard.read_clock()
    assert sorted(redis_keys.left_over()) == _under(redis_keys, "job_waiters", "listeners:job:a", "shard")
    await other.close()
    assert redis_keys.left_over() == _under(redis_keys, "shard")


async def test_w2_listeners_of_a_killed_process_expire(handle: RedisHandle) -> None:
    await arm_listener(handle, QUEUE, job_topic("a"))
    for name in (f"listeners:{QUEUE}", "listeners:job:a", "job_waiters"):
        assert 0 < await handle.shard.ask("TTL", handle.shard.key(name)) <= 3600, name


async def test_w1_a_script_flush_loses_no_wake_up(handle: RedisHandle) -> None:
    await handle.shard.ask("SCRIPT", "FLUSH")
    listener = await arm_listener(handle, QUEUE)
    handle.wakeups.wake([QUEUE])
    assert await listener.wait(AT_MOST)


async def test_w1_a_lost_pub_sub_connection_is_made_again_and_wakes_all(
    connect: Connect, redis_server: Redis
) -> None:
    async with Proxy(redis_server.port) as proxy:
        handle = await connect(f"redis://{HOST}:{proxy.port}")
        listener = await arm_listener(handle, QUEUE)
        proxy.reset()
        assert await listener.wait(AT_MOST), "a wake-up may have been missed"
        listener = await arm_listener(handle, QUEUE)
        await _wait_for_wake_up(handle, listener)
        await handle.close()


async def test_i23_without_pub_sub_everything_else_works(connect: Connect) -> None:
    """A user without access to channels gets late wake-ups, a warning, and no other problem."""
    with Redis() as server:
        with server.client() as client:
            client.acl_setuser("deaf", enabled=True, nopass=True, keys="*", commands=["+@all"])
        handle = await connect(f"redis://deaf:any@{HOST}:{server.port}")
        listener = await arm_listener(handle, QUEUE)
        handle.wakeups.wake([QUEUE])
        assert not await listener.wait(QUIET)
        (warning,) = handle.warnings()
        assert "cannot be woken" in warning
        assert "NOPERM" in warning
        await handle.close()


async def test_a_wake_up_takes_less_than_a_few_milliseconds(connect: Connect) -> None:
    """0.4 ms when measured alone; the limit allows for a machine that runs eight things at once."""
    ringing, waiting = await connect(), await connect()
    took = []
    for _ in range(50):
        listener = await arm_listener(waiting, QUEUE)
        began = time.perf_counter()
        ringing.wakeups.wake([QUEUE])
        assert await listener.wait(AT_MOST)
        took.append(time.perf_counter() - began)
    assert sorted(took)[25] < 0.01


async def test_an_idle_handle_sends_no_commands(connect: Connect, redis_server: Redis) -> None:
    """An armed listener costs the server no commands."""
    handle = await connect()
    listener = await arm_listener(handle, QUEUE)
    with redis_server.client() as client:
        before = client.info("stats")["total_commands_processed"]
        assert not await listener.wait(1.0)
        after = client.info("stats")["total_commands_processed"]
    assert after - before <= 2


async def _wait_for_wake_up(handle: RedisHandle, listener: RedisListener) -> None:
    """Wakes the listener until a wake-up arrives over the new connection."""
    async with asyncio.timeout(AT_MOST):
        while True:
            handle.wakeups.wake([QUEUE])
            if await listener.wait(QUIET):
                return
            listener.arm()


def _under(keys: RedisKeys, *names: str) -> list[str]:
    return [f"{{{keys.prefix}}}:{name}" for name in names]
