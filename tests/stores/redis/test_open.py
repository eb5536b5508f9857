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
from tidemill.store_url import StoreUrl
from tidemill.stores.redis import administration, handshake
from tidemill.stores.redis.address import parse_url
from tidemill.stores.redis.connection import run_without_loop
from tidemill.stores.redis.errors import ConnectionLostError
from tidemill.stores.redis.handle import RedisHandle
from tidemill.stores.redis.handshake import SCHEMA_VERSION


async def open_error(url: str, kind: type[TidemillError], prefix: str | None = None) -> str:
    with pytest.raises(kind) as refused:
        await RedisHandle(parse_url(url, prefix)).open()
    assert "secret" not in str(refused.value)
    return str(refused.value)


async def test_s1_a_closed_port_is_reported() -> None:
    port = free_port()
    message = await open_error(f"redis://:secret@{HOST}:{port}?timeout=0.2", StoreUnavailable)
    assert message == (
        f"redis://{HOST}:{port}: the server cannot be reached: connection refused; check host and port in "
        "the URL, and that Redis runs there"
    )


async def test_s1_an_unknown_host_is_reported() -> None:
    message = await open_error("redis://nowhere.invalid?timeout=0.2", StoreUnavailable)
    assert "cannot be reached" in message


async def test_s1_i22_a_silent_server_is_reported_in_time() -> None:
    """The error comes within the deadline."""

    async def read_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client gives up
        writer.close()

    quiet = await asyncio.start_server(read_only, HOST, 0)
    async with quiet, asyncio.timeout(3):
        port = quiet.sockets[0].getsockname()[1]
        message = await open_error(f"redis://{HOST}:{port}?timeout=0.5", StoreUnavailable)
    assert "did not answer in time" in message


async def test_s1_a_server_that_is_not_redis_is_reported() -> None:
    async def send_banner(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    other = await asyncio.start_server(send_banner, HOST, 0)
    async with other:
        port = other.sockets[0].getsockname()[1]
        message = await open_error(f"redis://{HOST}:{port}?timeout=0.2", StoreUnavailable)
    assert "does not speak the Redis protocol" in message


async def test_s1_a_wrong_password_is_refused() -> None:
    with Redis(requirepass="right") as server:
        wrong = f"redis://:secret@{HOST}:{server.port}"
        assert "refused the user or password" in await open_error(wrong, ConfigurationError)
        none = f"redis://{HOST}:{server.port}"
        assert "refused the user or password" in await open_error(none, ConfigurationError)
        handle = RedisHandle(parse_url(server.url))
        await handle.open()
        await handle.close()


async def test_s1_an_eviction_policy_is_refused() -> None:
    with Redis(maxmemory_policy="allkeys-lru") as server:
        message = await open_error(server.url, ConfigurationError)
        assert "CONFIG SET maxmemory-policy noeviction" in message
        with server.client() as client:
            client.config_set("maxmemory-policy", "noeviction")
        handle = RedisHandle(parse_url(server.url))
        await handle.open()
        await handle.close()


async def test_q10_an_accepted_eviction_policy_gives_a_warning(connect: Connect) -> None:
    with Redis(maxmemory_policy="allkeys-lru", append_only=True) as server:
        handle = await connect(f"{server.url}?eviction=allowed")
        (warning,) = (await administration.describe(handle)).warnings
        assert "throws jobs away" in warning
        await handle.close()


def test_q10_an_unknown_eviction_policy_gives_a_warning() -> None:
    (warning,) = handshake.server_warnings(handshake.parse_server_info("redis_version:7.0.0\r\n"))
    assert "does not say" in warning


async def test_s1_a_replica_is_refused(redis_server: Redis) -> None:
    with Redis(replicaof=f"{HOST} {redis_server.port}") as replica:
        message = await open_error(replica.url, StoreReadOnly)
    assert "redis+sentinel://" in message


@pytest.mark.parametrize(("found", "remedy"), [(SCHEMA_VERSION + 1, "upgrade tidemill"), (1, "before 0.1.0")])
async def test_s1_another_schema_version_is_refused(
    redis_server: Redis, redis_url: str, redis_prefix: str, found: int, remedy: str
) -> None:
    with redis_server.client() as client:
        client.hset(f"{{{redis_prefix}}}:shard", mapping={"schema": found, "fence": 7})
        message = await open_error(redis_url, SchemaMismatch, redis_prefix)
        kept = client.hgetall(f"{{{redis_prefix}}}:shard")
    assert remedy in message
    assert f"version {found}" in message
    assert kept == {"schema": str(found), "fence": "7"}, "nothing is touched"


async def test_s1_keys_of_another_program_are_refused(
    redis_server: Redis, redis_url: str, redis_prefix: str
) -> None:
    with redis_server.client() as client:
        client.set(f"{{{redis_prefix}}}:shard", "mine")
    assert "?prefix=" in await open_error(redis_url, StoreCorrupt, redis_prefix)


async def test_s1_a_missing_database_is_refused(redis_url: str, redis_prefix: str) -> None:
    message = await open_error(redis_url.removesuffix("/0") + "/999", ConfigurationError, redis_prefix)
    assert "database 999" in message


async def test_s1_open_waits_for_a_server_that_starts_late(connect: Connect) -> None:
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


def test_s1_server_versions_and_settings_are_checked() -> None:
    """Checks versions and settings that no installed server has, by their INFO."""
    info = "redis_version:{}\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nloading:{}\r\n"
    handshake.check_server(handshake.parse_server_info(info.format("6.0.16", 0)), "here")
    handshake.check_server(
        handshake.parse_server_info("redis_version:7.2.4\r\nvalkey_version:8.0.1\r\n"), "here"
    )
    with pytest.raises(StoreUnavailable, match=r"Redis 5\.0\.7 is too old; Tidemill needs Redis 6\.0"):
        handshake.check_server(handshake.parse_server_info(info.format("5.0.7", 0)), "here")
    with pytest.raises(ConnectionLostError, match="loading"):
        handshake.check_server(handshake.parse_server_info(info.format("7.0.0", 1)), "here")


def test_s1_without_an_append_only_file_there_is_a_warning() -> None:
    info = "redis_version:7.0.0\r\nmaxmemory_policy:noeviction\r\n"
    (warning,) = handshake.server_warnings(handshake.parse_server_info(f"{info}aof_enabled:0\r\n"))
    assert re.search("lost when it dies; run CONFIG SET appendonly yes", warning)
    assert not list(handshake.server_warnings(handshake.parse_server_info(f"{info}aof_enabled:1\r\n")))
    assert not list(handshake.server_warnings(handshake.parse_server_info(info))), (
        "a managed server does not say"
    )


async def test_tls_with_the_authoritys_file(redis_tls: Tls, connect: Connect) -> None:
    handle = await connect(f"{redis_tls.url}?ca={redis_tls.authority}")
    assert (await handle.shard.ask("PING")) == b"PONG"
    with handle.threads.shard() as shard:
        assert await asyncio.to_thread(lambda: run_without_loop(shard.ask("PING"))) == b"PONG"


async def test_tls_is_not_trusted_blindly(redis_tls: Tls, connect: Connect) -> None:
    message = await open_error(f"{redis_tls.url}?timeout=0.3", StoreUnavailable)
    assert "its certificate is not trusted" in message
    handle = await connect(f"{redis_tls.url}?verify=no")
    assert (await handle.shard.ask("PING")) == b"PONG"


async def test_tls_files_that_cannot_be_read(redis_tls: Tls, tmp_path: Path) -> None:
    message = await open_error(f"{redis_tls.url}?ca={tmp_path}/none.pem", ConfigurationError)
    assert "PEM" in message


async def test_tls_on_a_plain_port(redis_server: Redis) -> None:
    message = await open_error(f"rediss://{HOST}:{redis_server.port}?timeout=0.3", StoreUnavailable)
    assert "is this a TLS port?" in message


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
