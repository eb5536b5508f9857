"""Looking after a shard (U1 … U4)."""

from __future__ import annotations

import re
from pathlib import Path

from tests.servers.program import HOST
from tests.servers.redis import Redis
from tests.stores.redis.conftest import Connect
from tidemill.stores.redis import upkeep
from tidemill.stores.redis.handle import Handle


async def test_u1_what_serves_the_shard(handle: Handle) -> None:
    facts = await upkeep.describe(handle)
    assert facts.kind == "redis"
    assert facts.engine.split()[0] in ("Redis", "Valkey")
    assert facts.schema == 1
    assert facts.bytes is not None
    assert facts.bytes > 0
    (warning,) = facts.warnings
    assert "appendonly" in warning


async def test_u1_an_append_only_file_leaves_nothing_to_say(connect: Connect) -> None:
    with Redis(append_only=True, requirepass="hunter2") as server:
        handle = await connect(server.url)
        facts = await upkeep.describe(handle)
        assert facts.warnings == ()
        assert facts.location == f"redis://{HOST}:{server.port}?prefix={handle.address.prefix}"
        await handle.close()


async def test_u3_copies_are_the_servers_business(handle: Handle, redis_server: Redis) -> None:
    said = str(upkeep.refuse_backup(handle, Path("jobs.rdb")))
    assert f"redis-cli -h {HOST} -p {redis_server.port} --rdb jobs.rdb" in said
    assert "BGSAVE" in said


async def test_u4_memory_goes_back(handle: Handle) -> None:
    """How much does is the allocator's business; the server counts that it was asked."""
    before = await purges(handle)
    await upkeep.compact(handle)
    assert await purges(handle) == before + 1


async def purges(handle: Handle) -> int:
    """Servers before 7.0 count a command with all its subcommands."""
    told = await handle.shard.ask(b"INFO", b"commandstats")
    assert isinstance(told, bytes)
    found = re.search(rb"^cmdstat_memory(?:\|purge)?:calls=(\d+)", told, re.MULTILINE)
    return int(found[1]) if found else 0
