"""J1, I22, S12: a verb ends in time, with an answer or a clear error, and is done twice only if it may be."""

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
from tidemill.stores.redis.address import parse
from tidemill.stores.redis.handle import Handle
from tidemill.stores.redis.lines import finished
from tidemill.stores.redis.scripts import Script
from tidemill.stores.redis.shard import Shard

NOTE = Script("note", "return redis.call('INCR', KEYS[1] .. 'noted')")
"""Shows how often it was done."""


@pytest.fixture
async def proxy(redis_server: Redis) -> AsyncIterator[Proxy]:
    async with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def far(connect: Connect, proxy: Proxy) -> Shard:
    """Through a network that fails on demand; the first call has loaded the script."""
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


async def test_a_cancelled_caller_takes_no_others_answer(shard: Shard) -> None:
    await shard.run(NOTE)
    calls = [asyncio.ensure_future(shard.run(NOTE)) for _ in range(20)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers[1::2] == list(range(3, 22, 2))


async def test_j1_a_lost_reply_is_asked_for_again_where_it_may_be(far: Shard, proxy: Proxy) -> None:
    lost = proxy.cut_after(0)
    assert await far.run(NOTE, repeatable=True) == 3
    assert lost.done()


async def test_j1_a_lost_reply_is_said_to_be_lost_where_it_may_not(far: Shard, proxy: Proxy) -> None:
    lost = proxy.cut_after(0)
    with pytest.raises(StoreUnavailable, match="may or may not be done"):
        await far.run(NOTE)
    assert lost.done()
    assert await noted(far) == 2


async def test_a_reply_cut_in_the_middle(far: Shard, proxy: Proxy) -> None:
    await far.ask("SET", far.key("long"), "x" * 1000)
    proxy.cut_after(500)
    assert await far.ask("GET", far.key("long")) == b"x" * 1000


async def test_s12_a_connection_that_was_reset_is_made_anew(far: Shard, proxy: Proxy) -> None:
    proxy.reset()
    assert await far.run(NOTE, repeatable=True) == 2


async def test_i22_a_silent_network_ends_a_verb_in_time(far: Shard, proxy: Proxy) -> None:
    proxy.hold()
    async with asyncio.timeout(4):
        with pytest.raises(
            StoreUnavailable, match=r"^redis://127\.0\.0\.1:\d+\?prefix=t\d+: the server cannot"
        ):
            await far.run(NOTE, repeatable=True)
    proxy.release()
    assert await far.run(NOTE, repeatable=True) >= 2


async def test_s12_half_open_connections_are_left(far: Shard, proxy: Proxy) -> None:
    """A firewall forgot the connection: nobody answers and nobody says so."""
    proxy.forget()
    with pytest.raises(StoreUnavailable, match="may or may not be done"):
        await far.run(NOTE)
    assert await far.run(NOTE, repeatable=True) == 2


async def test_s12_everybody_waits_for_one_new_connection(far: Shard, proxy: Proxy) -> None:
    before = proxy.connections
    proxy.reset()
    await asyncio.gather(*(far.run(NOTE, repeatable=True) for _ in range(50)))
    assert proxy.connections <= before + 2, "one for verbs, one to be rung over"


async def test_s12_a_server_that_was_restarted(connect: Connect) -> None:
    with Redis(append_only=True) as server:
        shard = (await connect(server.url)).shard
        await shard.run(NOTE)
        server.kill()
        call = asyncio.ensure_future(shard.run(NOTE, repeatable=True))
        await asyncio.to_thread(server.start)
        assert await call == 2
        await shard.close()


async def test_i24_a_full_memory_is_said_and_heals(connect: Connect) -> None:
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
    """Somebody may promote it again within the deadline; else it is said."""
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


async def test_s2_closing_waits_for_what_is_under_way(handle: Handle) -> None:
    """Also where it takes several trips: here the script has to be loaded first."""
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
        # It closes what is open when it is closed itself, and complains; nobody could have closed it before.
        pytest.param(uvloop.run, marks=pytest.mark.filterwarnings("ignore::ResourceWarning")),
    ],
)
def test_s3_a_loop_per_call_collects_no_connections(
    run: Callable[[Coroutine[Any, Any, Any]], Any], redis_server: Redis, redis_url: str, redis_prefix: str
) -> None:
    """A program that runs a loop per request and closes nothing: the next one closes for it."""
    handle = Handle(parse(redis_url, redis_prefix))

    async def call() -> int:
        await handle.open()
        return int(await handle.shard.run(NOTE))

    assert [run(call()) for _ in range(3)] == [1, 2, 3]
    with redis_server.client() as client:
        assert len([one for one in client.client_list() if one["name"] == "tidemill"]) <= 2
    run(handle.close())


def test_s3_threads_without_a_loop(redis_url: str, redis_prefix: str) -> None:
    handle = Handle(parse(redis_url, redis_prefix))
    answers: list[int] = []

    def call() -> None:
        for _ in range(10):
            with handle.threads.shard() as shard:
                answers.append(finished(shard.run(NOTE)))

    threads = [threading.Thread(target=call) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(1, 51))
    handle.threads.close()


def test_s3_a_verb_that_would_wait_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="waited for an event loop"):
        finished(asyncio.sleep(0))


def test_threads_after_the_server_was_gone(redis_prefix: str) -> None:
    with Redis(append_only=True) as server:
        handle = Handle(parse(server.url, redis_prefix))
        with handle.threads.shard() as shard:
            assert finished(shard.run(NOTE)) == 1
        server.kill()
        server.start()
        with handle.threads.shard() as shard:
            assert finished(shard.run(NOTE, repeatable=True)) == 2
        handle.threads.close()


async def test_s12_a_thread_leaves_a_connection_that_the_network_forgot(
    connect: Connect, proxy: Proxy
) -> None:
    """Within the 5 s of a verb (I22): it had waited all of them for the first connection's reply."""
    handle = await connect(f"redis://{HOST}:{proxy.port}")

    def call() -> int:
        with handle.threads.shard() as shard:
            return int(finished(shard.run(NOTE, repeatable=True)))

    assert await asyncio.to_thread(call) == 1
    proxy.forget()
    assert await asyncio.to_thread(call) == 2


async def test_a_fork_leaves_the_parents_connections_alone(handle: Handle) -> None:
    """The child talks on connections of its own; the parent's go on."""
    await handle.shard.run(NOTE)
    with handle.threads.shard() as shard:
        finished(shard.run(NOTE))
    child = os.fork()
    if not child:
        try:
            with handle.threads.shard() as shard:
                os._exit(0 if finished(shard.run(NOTE)) == 3 else 1)
        finally:
            os._exit(2)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert status == 0
    assert await handle.shard.run(NOTE) == 4
    with handle.threads.shard() as shard:
        assert finished(shard.run(NOTE)) == 5
