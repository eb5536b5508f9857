"""The documented access list is enough, and gives access to nothing outside the prefix."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.docs.page_runner import code_blocks
from tests.docs.pages import page, section
from tests.servers.program import HOST
from tests.servers.redis import Redis
from tests.stores.redis.conftest import Connect
from tidemill.contract.coordination import queue_topic
from tidemill.errors import ConfigurationError, StoreUnavailable
from tidemill.stores.redis import administration
from tidemill.stores.redis.address import parse_url
from tidemill.stores.redis.connection import run_without_loop
from tidemill.stores.redis.handle import RedisHandle
from tidemill.stores.redis.scripts import LuaScript

QUEUE = queue_topic("q")


def line() -> list[str]:
    text = section(page("how-to/deploy-on-redis.md"), "A user of its own")
    return next(body for _, body in code_blocks(text)).split()


@pytest.fixture
def url(redis_server: Redis, redis_prefix: str) -> Iterator[str]:
    """The URL of a user with the documented rights on this test's prefix."""
    command = [word.replace("{tidemill}", f"{{{redis_prefix}}}") for word in line()]
    with redis_server.client() as client:
        client.execute_command(*command)
        yield f"redis://tidemill:password@{HOST}:{redis_server.port}"
        client.acl_deluser("tidemill")


async def test_the_documented_user_may_do_everything_needed(connect: Connect, url: str) -> None:
    handle = await connect(url)
    listener = handle.wakeups.listen([QUEUE])
    listener.arm()
    handle.wakeups.wake([QUEUE])
    assert await listener.wait(5.0)
    assert (await administration.describe(handle)).warnings[1:] == ()
    await administration.compact(handle)
    with handle.threads.shard() as shard:
        assert await asyncio.to_thread(lambda: run_without_loop(shard.ask("PING"))) == b"PONG"


async def test_the_documented_user_reaches_nothing_else(connect: Connect, url: str) -> None:
    shard = (await connect(url)).shard
    for command in (("GET", "other"), ("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*")):
        with pytest.raises(StoreUnavailable, match="NOPERM"):
            await shard.ask(*command)


async def test_s1_commands_forbidden_inside_scripts_are_reported_alike(connect: Connect, url: str) -> None:
    """Servers have no error code for it: Valkey names the command, Redis 7.0 only says "this command"."""
    with pytest.raises(StoreUnavailable, match=r"forbids .*('keys'|this command).*ACL line"):
        await (await connect(url)).shard.run(LuaScript("look", "return redis.call('KEYS', '*')"))


async def test_s1_a_user_without_rights_is_pointed_to_the_acl_line(redis_server: Redis) -> None:
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "poor", "on", ">password", "~*", "+@connection")
        try:
            with pytest.raises(ConfigurationError, match=r"forbids .*NOPERM.*ACL line"):
                await RedisHandle(parse_url(f"redis://poor:password@{HOST}:{redis_server.port}")).open()
        finally:
            client.acl_deluser("poor")
