"""Servers crash under load: no job is lost or repeated, and everything recovers by itself (I1, I24)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.chaos.chaos_stores import create_store
from tests.chaos.traffic import Traffic
from tests.servers.postgres import Postgres
from tests.servers.program import HOST
from tests.servers.redis import Redis
from tests.servers.redis_cluster import RedisCluster
from tidemill import Tidemill
from tidemill.errors import StoreReadOnly

TIMES = 3 if "TIDEMILL_CHAOS_SECONDS" not in os.environ else 50
SNAPSHOT = 3.0 if "TIDEMILL_CHAOS_SECONDS" not in os.environ else 60.0
END_ALL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidemill'"
pytestmark = [pytest.mark.alone, pytest.mark.timeout(120 + 10 * TIMES + SNAPSHOT)]


@pytest.mark.parametrize("store", ["redis", "postgres"])
async def test_a_killed_server_that_comes_back(store: str, tmp_path: Path) -> None:
    """The server keeps its acknowledged writes: Redis with `appendfsync always`, PostgreSQL by default."""
    with create_store(store, tmp_path) as where:
        assert where.server is not None
        load = Traffic(where.url)
        async with load.under_way():
            for _ in range(TIMES):
                await load.wait_for_progress()
                where.server.kill()
                await asyncio.to_thread(where.server.start)
        await load.check(where.url)


async def test_a_server_that_is_a_standby_for_a_while() -> None:
    """Like a failover before the promotion. A new client gets an error that says what to do; a connected
    client continues when the server is writable."""
    with Postgres() as server:
        load = Traffic(server.url)
        async with load.under_way():
            await load.wait_for_progress()
            await asyncio.to_thread(server.end)
            (server.data / "standby.signal").touch()
            await asyncio.to_thread(server.start)
            with pytest.raises(StoreReadOnly, match=r"is a standby .*; name the primary in the URL"):
                await Tidemill(server.url).__aenter__()
            while not load.refused:  # noqa: ASYNC110 - until a listener was notified
                await asyncio.sleep(0.01)
            with server.client() as client:
                client.execute("SELECT pg_promote()")
            await load.wait_for_progress()
        await load.check(server.url)


async def test_scripts_that_are_flushed(redis_url: str, redis_server: Redis) -> None:
    load = Traffic(redis_url)
    with redis_server.client() as client:
        async with load.under_way():
            for _ in range(10 * TIMES):
                await load.wait_for_progress()
                client.script_flush()
    await load.check(redis_url)


async def test_i24_a_full_memory_heals() -> None:
    """`noeviction` is required: a full server refuses writes and evicts nothing."""
    with Redis(append_only=True) as server, server.client() as client:
        load = Traffic(server.url)
        async with load.under_way():
            await load.wait_for_progress()
            client.config_set("maxmemory", 1)
            while not load.refused:  # noqa: ASYNC110 - until a listener was notified
                await asyncio.sleep(0.01)
            client.config_set("maxmemory", 0)
            await load.wait_for_progress()
        await load.check(server.url)


async def test_connections_that_an_administrator_ends(postgres_url: str, postgres_server: Postgres) -> None:
    """Also the connections that listen for wake-ups."""
    load = Traffic(postgres_url)
    with postgres_server.client() as client:
        async with load.under_way():
            for _ in range(TIMES):
                await load.wait_for_progress()
                client.execute(END_ALL)
    await load.check(postgres_url)


async def test_a_transaction_that_stays_open(postgres_url: str, postgres_server: Postgres) -> None:
    """PostgreSQL cannot vacuum rows that were written since."""
    load = Traffic(postgres_url)
    with postgres_server.client() as client:
        async with load.under_way():
            await load.wait_for_progress()
            client.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            client.execute("SELECT count(*) FROM tidemill.jobs")
            await asyncio.sleep(SNAPSHOT)
            before = len(load.sent)
            await load.wait_for_progress()
            client.execute("COMMIT")
    assert before > 20
    await load.check(postgres_url)


async def test_a_cluster_of_three(redis_cluster: RedisCluster) -> None:
    url = f"redis+cluster://{HOST}:{redis_cluster.nodes[0].port}?prefix=load"
    load = Traffic(url)
    async with load.under_way():
        for _ in range(TIMES):
            await load.wait_for_progress()
    await load.check(url)
