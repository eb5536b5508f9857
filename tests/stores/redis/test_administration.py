"""Maintenance of a shard (U1 to U4)."""

from __future__ import annotations

import re
from pathlib import Path

from tests.servers.program import HOST
from tests.servers.redis import Redis
from tests.stores.redis.conftest import Connect
from tidemill.stores.redis import administration
from tidemill.stores.redis.handle import RedisHandle
from tidemill.stores.redis.handshake import SCHEMA_VERSION


async def test_u1_describe_names_the_server(handle: RedisHandle) -> None:
    facts = await administration.describe(handle)
    assert facts.kind == "redis"
    assert facts.engine.split()[0] in ("Redis", "Valkey")
    assert facts.schema == SCHEMA_VERSION
    assert facts.bytes is not None
    assert facts.bytes > 0
    (warning,) = facts.warnings
    assert "appendonly" in warning


async def test_u1_an_append_only_file_gives_no_warning(connect: Connect) -> None:
    with Redis(append_only=True, requirepass="hunter2") as server:
        handle = await connect(server.url)
        facts = await administration.describe(handle)
        assert facts.warnings == ()
        assert facts.location == f"redis://{HOST}:{server.port}?prefix={handle.address.prefix}"
        await handle.close()


async def test_u3_backup_is_refused_with_the_redis_command(handle: RedisHandle, redis_server: Redis) -> None:
    message = str(administration.refuse_backup(handle, Path("jobs.rdb")))
    assert f"redis-cli -h {HOST} -p {redis_server.port} --rdb jobs.rdb" in message
    assert "BGSAVE" in message


async def test_u4_compact_returns_memory(handle: RedisHandle) -> None:
    """The allocator decides how much memory it returns; the server counts the command."""
    before = await count_purges(handle)
    await administration.compact(handle)
    assert await count_purges(handle) == before + 1


async def count_purges(handle: RedisHandle) -> int:
    """Servers before 7.0 count a command together with its subcommands."""
    stats = await handle.shard.ask(b"INFO", b"commandstats")
    assert isinstance(stats, bytes)
    found = re.search(rb"^cmdstat_memory(?:\|purge)?:calls=(\d+)", stats, re.MULTILINE)
    return int(found[1]) if found else 0
