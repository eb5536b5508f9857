"""J1, I22, S12: a verb ends in time with a reply or a clear error; only repeatable verbs run twice."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from tests.servers.program import HOST
from tests.servers.proxy import Proxy
from tests.servers.redis import Redis
from tests.stores.redis.conftest import Connect
from tidemill.errors import StoreFull, StoreReadOnly, StoreUnavailable
from tidemill.stores.redis.address import parse_url
from tidemill.stores.redis.connection import run_without_loop
from tidemill.stores.redis.handle import RedisHandle
from tidemill.stores.redis.scripts import LuaScript
from tidemill.stores.redis.shard import Shard

NOTE = LuaScript("note", "return redis.call('INCR', KEYS[1] .. 'noted')")
"""A script that counts its runs."""


@pytest.fixture
async def proxy(redis_server: Redis) -> AsyncIterator[Proxy]:
    async with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def proxied_shard(connect: Connect, proxy: Proxy) -> Shard:
    """A shard behind a proxy that fails on demand; its first call has loaded the script."""
    shard = (await connect(f"redis://{HOST}:{proxy.port}?timeout=2")).shard
    await shard.run(NOTE)
    return shard


async def noted(shard: Shard) -> int:
    return int(await shard.ask("GET", shard.key("noted")))


async def test_scripts_are_loaded_again_after_a_flush(shard: Shard) -> None:
    assert await shard.run(NOTE) == 1
    await shard.ask("SCRIPT", "FLUSH")
    assert await shard.run(NOTE) == 2


async def test_many_verbs_share_the_connection(shard: Shard) -> None:
    await shard.ask("SCRIPT", "FLUSH")
    answers = await asyncio.gather(*(shard.run(NOTE) for _ in range(200)))
    assert sorted(answers) == list(range(1, 201))


async def test_a_cancelled_caller_takes_no_reply_of_another(shard: Shard) -> None:
    await shard.run(NOTE)
    calls = [asyncio.ensure_future(shard.run(NOTE)) for _ in range(20)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers[1::2] == list(range(3, 22, 2))


async def test_j1_a_repeatable_call_is_sent_again_after_a_lost_reply(
    proxied_shard: Shard, proxy: Proxy
) -> None:
    lost = proxy.cut_after(0)
    assert await proxied_shard.run(NOTE, repeatable=True) == 3
    assert lost.done()


async def test_j1_a_lost_reply_of_an_unrepeatable_call_raises(proxied_shard: Shard, proxy: Proxy) -> None:
    lost = proxy.cut_after(0)
    with pytest.raises(StoreUnavailable, match="may or may not have been executed"):
        await proxied_shard.run(NOTE)
    assert lost.done()
    assert await noted(proxied_shard) == 2


async def test_a_reply_cut_in_the_middle(proxied_shard: Shard, proxy: Proxy) -> None:
    await proxied_shard.ask("SET", proxied_shard.key("long"), "x" * 1000)
    proxy.cut_after(500)
    assert await proxied_shard.ask("GET", proxied_shard.key("long")) == b"x" * 1000


async def test_s12_a_reset_connection_is_made_again(proxied_shard: Shard, proxy: Proxy) -> None:
    proxy.reset()
    assert await proxied_shard.run(NOTE, repeatable=True) == 2


async def test_i22_a_silent_network_ends_a_verb_in_time(proxied_shard: Shard, proxy: Proxy) -> None:
    proxy.hold()
    async with asyncio.timeout(4):
        with pytest.raises(
            StoreUnavailable, match=r"^redis://127\.0\.0\.1:\d+\?prefix=t\d+: the server cannot"
        ):
            await proxied_shard.run(NOTE, repeatable=True)
    proxy.release()
    assert await proxied_shard.run(NOTE, repeatable=True) >= 2


async def test_s12_half_open_connections_are_dropped(proxied_shard: Shard, proxy: Proxy) -> None:
    """A firewall dropped the connection silently."""
    proxy.forget()
    with pytest.raises(StoreUnavailable, match="may or may not have been executed"):
        await proxied_shard.run(NOTE)
    assert await proxied_shard.run(NOTE, repeatable=True) == 2


async def test_s12_concurrent_calls_share_one_new_connection(proxied_shard: Shard, proxy: Proxy) -> None:
    before = proxy.connections
    proxy.reset()
    await asyncio.gather(*(proxied_shard.run(NOTE, repeatable=True) for _ in range(50)))
    assert proxy.connections <= before + 2, "one for verbs, one for wake-ups"


async def test_s12_a_restarted_server_is_connected_to_again(connect: Connect) -> None:
    with Redis(append_only=True) as server:
        shard = (await connect(server.url)).shard
        await shard.run(NOTE)
        server.kill()
        call = asyncio.ensure_future(shard.run(NOTE, repeatable=True))
        await asyncio.to_thread(server.start)
        assert await call == 2
        await shard.close()


async def test_i24_a_full_server_is_reported_and_recovers(connect: Connect) -> None:
    with Redis() as server:
        shard = (await connect(server.url)).shard
        await shard.run(NOTE)
        await shard.ask("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(StoreFull, match="maxmemory"):
            await shard.run(NOTE)
        await shard.ask("CONFIG", "SET", "maxmemory", 0)
        assert await shard.run(NOTE) == 2
        await shard.close()


async def test_a_primary_that_became_a_replica(connect: Connect, redis_server: Redis) -> None:
    """It may be promoted again within the deadline; otherwise the call raises."""
    with Redis() as server:
        shard = (await connect(f"{server.url}?timeout=1")).shard
        await shard.run(NOTE)
        with server.client() as client:
            client.replicaof(HOST, redis_server.port)
            with pytest.raises(StoreReadOnly, match="read-only replica"):
                await shard.run(NOTE)
            client.replicaof("NO", "ONE")
        await shard.run(NOTE)
        await shard.close()


async def test_s2_closing_waits_for_calls_in_flight(handle: RedisHandle) -> None:
    """Also if the call takes several round trips: here the script has to be loaded first."""
    await handle.shard.ask("SCRIPT", "FLUSH")
    call = asyncio.ensure_future(handle.shard.run(NOTE))
    await asyncio.sleep(0)
    await handle.close()
    assert await call == 1
    await handle.close()
    with pytest.raises(StoreUnavailable, match="closed; open it again"):
        _ = handle.shard
    await handle.open()
    assert await handle.shard.run(NOTE) == 2


@pytest.mark.parametrize(
    "run",
    [
        asyncio.run,
        # uvloop closes its open transports when it is closed, with a warning; earlier closing is impossible.
        pytest.param(uvloop.run, marks=pytest.mark.filterwarnings("ignore::ResourceWarning")),
    ],
)
def test_s3_one_loop_per_call_leaks_no_connections(
    run: Callable[[Coroutine[Any, Any, Any]], Any], redis_server: Redis, redis_url: str, redis_prefix: str
) -> None:
    """A program runs one loop per request and closes nothing; the next call closes the old connection."""
    handle = RedisHandle(parse_url(redis_url, redis_prefix))

    async def call() -> int:
        await handle.open()
        return int(await handle.shard.run(NOTE))

    assert [run(call()) for _ in range(3)] == [1, 2, 3]
    with redis_server.client() as client:
        assert len([one for one in client.client_list() if one["name"] == "tidemill"]) <= 2
    run(handle.close())


def test_s3_threads_without_a_loop(redis_url: str, redis_prefix: str) -> None:
    handle = RedisHandle(parse_url(redis_url, redis_prefix))
    answers: list[int] = []

    def call() -> None:
        for _ in range(10):
            with handle.threads.shard() as shard:
                answers.append(run_without_loop(shard.run(NOTE)))

    threads = [threading.Thread(target=call) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(1, 51))
    handle.threads.close()


def test_s3_a_verb_that_suspends_on_a_thread_raises() -> None:
    with pytest.raises(RuntimeError, match="waited for an event loop"):
        run_without_loop(asyncio.sleep(0))


def test_threads_recover_after_a_server_restart(redis_prefix: str) -> None:
    with Redis(append_only=True) as server:
        handle = RedisHandle(parse_url(server.url, redis_prefix))
        with handle.threads.shard() as shard:
            assert run_without_loop(shard.run(NOTE)) == 1
        server.kill()
        server.start()
        with handle.threads.shard() as shard:
            assert run_without_loop(shard.run(NOTE, repeatable=True)) == 2
        handle.threads.close()


async def test_s12_a_thread_drops_a_silent_connection(connect: Connect, proxy: Proxy) -> None:
    """Within the 5 s of a verb (I22): waiting for the first connection's reply used all of them."""
    handle = await connect(f"redis://{HOST}:{proxy.port}")

    def call() -> int:
        with handle.threads.shard() as shard:
            return int(run_without_loop(shard.run(NOTE, repeatable=True)))

    assert await asyncio.to_thread(call) == 1
    proxy.forget()
    assert await asyncio.to_thread(call) == 2


async def test_a_fork_leaves_the_parents_connections_alone(handle: RedisHandle) -> None:
    """The child opens new connections; the connections of the parent continue to work."""
    await handle.shard.run(NOTE)
    with handle.threads.shard() as shard:
        run_without_loop(shard.run(NOTE))
    child = os.fork()
    if not child:
        try:
            with handle.threads.shard() as shard:
                os._exit(0 if run_without_loop(shard.run(NOTE)) == 3 else 1)
        finally:
            os._exit(2)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert status == 0
    assert await handle.shard.run(NOTE) == 4
    with handle.threads.shard() as shard:
        assert run_without_loop(shard.run(NOTE)) == 5
