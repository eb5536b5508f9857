"""S1: `open` says in one sentence what is wrong and what to do, and shows no secret."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.servers.certificates import Tls
from tests.servers.program import HOST, free_port
from tests.servers.redis import Redis
from tests.stores.redis.conftest import Connect
from tidemill.app.stores import make_store
from tidemill.clock import SystemClock, SystemEntropy
from tidemill.errors import (
    ConfigurationError,
    SchemaMismatch,
    StoreCorrupt,
    StoreReadOnly,
    StoreUnavailable,
    TidemillError,
)
from tidemill.stores.redis import policy, upkeep
from tidemill.stores.redis.address import parse
from tidemill.stores.redis.faults import Lost
from tidemill.stores.redis.greeting import SCHEMA
from tidemill.stores.redis.handle import Handle
from tidemill.stores.redis.lines import finished
from tidemill.urls import StoreUrl


async def refusal(url: str, kind: type[TidemillError], prefix: str | None = None) -> str:
    with pytest.raises(kind) as refused:
        await Handle(parse(url, prefix)).open()
    assert "secret" not in str(refused.value)
    return str(refused.value)


async def test_s1_nobody_listens() -> None:
    port = free_port()
    said = await refusal(f"redis://:secret@{HOST}:{port}?timeout=0.2", StoreUnavailable)
    assert said == (
        f"redis://{HOST}:{port}: the server cannot be reached: connection refused; check host and port in "
        "the URL, and that Redis runs there"
    )


async def test_s1_no_such_machine() -> None:
    said = await refusal("redis://nowhere.invalid?timeout=0.2", StoreUnavailable)
    assert "cannot be reached" in said


async def test_s1_i22_a_server_that_says_nothing() -> None:
    """Within the deadline."""

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client gives up
        writer.close()

    quiet = await asyncio.start_server(hear, HOST, 0)
    async with quiet, asyncio.timeout(3):
        port = quiet.sockets[0].getsockname()[1]
        said = await refusal(f"redis://{HOST}:{port}?timeout=0.5", StoreUnavailable)
    assert "did not answer in time" in said


async def test_s1_something_else_listens() -> None:
    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    other = await asyncio.start_server(speak, HOST, 0)
    async with other:
        port = other.sockets[0].getsockname()[1]
        said = await refusal(f"redis://{HOST}:{port}?timeout=0.2", StoreUnavailable)
    assert "does not speak as Redis does" in said


async def test_s1_a_wrong_password() -> None:
    with Redis(requirepass="right") as server:
        wrong = f"redis://:secret@{HOST}:{server.port}"
        assert "refused the user or password" in await refusal(wrong, ConfigurationError)
        none = f"redis://{HOST}:{server.port}"
        assert "refused the user or password" in await refusal(none, ConfigurationError)
        handle = Handle(parse(server.url))
        await handle.open()
        await handle.close()


async def test_s1_an_evicting_policy() -> None:
    with Redis(maxmemory_policy="allkeys-lru") as server:
        said = await refusal(server.url, ConfigurationError)
        assert "CONFIG SET maxmemory-policy noeviction" in said
        with server.client() as client:
            client.config_set("maxmemory-policy", "noeviction")
        handle = Handle(parse(server.url))
        await handle.open()
        await handle.close()


async def test_q10_an_evicting_policy_may_be_accepted_and_is_not_forgotten(connect: Connect) -> None:
    with Redis(maxmemory_policy="allkeys-lru", append_only=True) as server:
        handle = await connect(f"{server.url}?eviction=allowed")
        (warning,) = (await upkeep.describe(handle)).warnings
        assert "throws jobs away" in warning
        await handle.close()


def test_q10_a_server_that_does_not_say_is_worth_a_warning() -> None:
    (warning,) = policy.warnings(policy.read("redis_version:7.0.0\r\n"))
    assert "does not say" in warning


async def test_s1_a_replica(redis_server: Redis) -> None:
    with Redis(replicaof=f"{HOST} {redis_server.port}") as replica:
        said = await refusal(replica.url, StoreReadOnly)
    assert "redis+sentinel://" in said


@pytest.mark.parametrize(("found", "says"), [(SCHEMA + 1, "upgrade tidemill"), (0, "before 0.1.0")])
async def test_s1_another_schema(
    redis_server: Redis, redis_url: str, redis_prefix: str, found: int, says: str
) -> None:
    with redis_server.client() as client:
        client.hset(f"{{{redis_prefix}}}:shard", mapping={"schema": found, "fence": 7})
        said = await refusal(redis_url, SchemaMismatch, redis_prefix)
        kept = client.hgetall(f"{{{redis_prefix}}}:shard")
    assert says in said
    assert f"version {found}" in said
    assert kept == {"schema": str(found), "fence": "7"}, "nothing is touched"


async def test_s1_another_programs_keys(redis_server: Redis, redis_url: str, redis_prefix: str) -> None:
    with redis_server.client() as client:
        client.set(f"{{{redis_prefix}}}:shard", "mine")
    assert "?prefix=" in await refusal(redis_url, StoreCorrupt, redis_prefix)


async def test_s1_a_database_that_is_not_there(redis_url: str, redis_prefix: str) -> None:
    said = await refusal(redis_url.removesuffix("/0") + "/999", ConfigurationError, redis_prefix)
    assert "database 999" in said


async def test_s1_a_server_that_comes_up_late(connect: Connect) -> None:
    """An application and its server often start together."""
    server = Redis()
    try:
        opening = asyncio.ensure_future(connect(f"redis://{HOST}:{server.port}"))
        await asyncio.to_thread(server.start)
        handle = await opening
        assert (await handle.shard.read_clock())[0] > 0
        await handle.close()
    finally:
        server.end()


def test_s1_what_a_server_may_be() -> None:
    """Versions and settings that no server here has, by what INFO would say."""
    info = "redis_version:{}\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nloading:{}\r\n"
    policy.check(policy.read(info.format("6.0.16", 0)), "here")
    policy.check(policy.read("redis_version:7.2.4\r\nvalkey_version:8.0.1\r\n"), "here")
    with pytest.raises(StoreUnavailable, match=r"Redis 5\.0\.7 is too old; Tidemill needs Redis 6\.0"):
        policy.check(policy.read(info.format("5.0.7", 0)), "here")
    with pytest.raises(Lost, match="loading"):
        policy.check(policy.read(info.format("7.0.0", 1)), "here")


def test_s1_without_an_append_only_file_there_is_a_warning() -> None:
    info = "redis_version:7.0.0\r\nmaxmemory_policy:noeviction\r\n"
    (warning,) = policy.warnings(policy.read(f"{info}aof_enabled:0\r\n"))
    assert re.search("lost when it dies; run CONFIG SET appendonly yes", warning)
    assert not list(policy.warnings(policy.read(f"{info}aof_enabled:1\r\n")))
    assert not list(policy.warnings(policy.read(info))), "a managed server does not say"


async def test_tls_with_the_authoritys_file(redis_tls: Tls, connect: Connect) -> None:
    handle = await connect(f"{redis_tls.url}?ca={redis_tls.authority}")
    assert (await handle.shard.ask("PING")) == b"PONG"
    with handle.threads.shard() as shard:
        assert await asyncio.to_thread(lambda: finished(shard.ask("PING"))) == b"PONG"


async def test_tls_is_not_trusted_blindly(redis_tls: Tls, connect: Connect) -> None:
    said = await refusal(f"{redis_tls.url}?timeout=0.3", StoreUnavailable)
    assert "its certificate is not trusted" in said
    handle = await connect(f"{redis_tls.url}?verify=no")
    assert (await handle.shard.ask("PING")) == b"PONG"


async def test_tls_files_that_cannot_be_read(redis_tls: Tls, tmp_path: Path) -> None:
    said = await refusal(f"{redis_tls.url}?ca={tmp_path}/none.pem", ConfigurationError)
    assert "PEM" in said


async def test_tls_on_a_plain_port(redis_server: Redis) -> None:
    said = await refusal(f"rediss://{HOST}:{redis_server.port}?timeout=0.3", StoreUnavailable)
    assert "is this a TLS port?" in said


async def test_a_socket(connect: Connect, tmp_path: Path) -> None:
    with Redis(unixsocket=str(tmp_path / "r.sock")):
        handle = await connect(f"redis+unix://{tmp_path}/r.sock?db=3")
        assert (await handle.shard.ask("PING")) == b"PONG"
        await handle.close()


def test_s1_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tidemill.stores.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "hiredis", None)
    with pytest.raises(ConfigurationError, match=r"hiredis; run pip install 'tidemill\[redis\]'"):
        make_store(StoreUrl.parse("redis://localhost"), SystemClock(), SystemEntropy())
