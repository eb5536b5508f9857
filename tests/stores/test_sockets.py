"""A name with several addresses: a dead one does not hide the others."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.postgres import Postgres
from tests.servers.program import HOST, free_port
from tests.servers.redis import Redis
from tidemill.clock import SystemClock
from tidemill.stores import sockets
from tidemill.stores.postgres.address import PostgresAddress
from tidemill.stores.postgres.connection_pool import ConnectionPool
from tidemill.stores.redis.address import parse_url
from tidemill.stores.redis.handle import RedisHandle
from tidemill.stores.sockets import interleave_families, open_blocking_socket, open_socket

SILENT = "127.0.0.2"


class SilentPort:
    """Accepts one connection and drops the SYN of every other, as a dead address does."""

    def __init__(self, port: int) -> None:
        self.listener = socket.socket()
        self.listener.bind((SILENT, port))
        self.listener.listen(0)
        self.fillers = [socket.socket() for _ in range(4)]
        for filler in self.fillers:
            filler.setblocking(False)
            filler.connect_ex((SILENT, port))

    def close(self) -> None:
        for one in (*self.fillers, self.listener):
            one.close()


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that the name `dual.example` has."""
    addresses: list[str] = []
    system = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *args: Any, **options: Any) -> list[Any]:
        if host != "dual.example" or options.get("flags") == socket.AI_NUMERICHOST:
            return list(system(host, port, *args, **options))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return addresses


@pytest.fixture
def silent(redis_server: Redis) -> Iterator[None]:
    port = SilentPort(redis_server.port)
    yield
    port.close()


async def test_postgresql_opens_beside_a_dead_address(resolved: list[str], postgres_server: Postgres) -> None:
    resolved[:] = [SILENT, HOST]
    silent = SilentPort(postgres_server.port)
    links = ConnectionPool(PostgresAddress.parse(postgres_server.url.replace(HOST, "dual.example")))
    link = await links.take()
    assert await link.fetchval("SELECT 1") == 1
    links.give_back(link)
    await links.close()
    silent.close()


@pytest.mark.usefixtures("silent")
async def test_the_address_that_answers_is_taken(resolved: list[str], redis_server: Redis) -> None:
    resolved[:] = [SILENT, HOST]
    async with asyncio.timeout(3):
        with await open_socket("dual.example", redis_server.port) as opened:
            assert opened.getpeername()[0] == HOST
    with open_blocking_socket("dual.example", redis_server.port, 1) as opened:
        assert opened.getpeername()[0] == HOST
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.usefixtures("silent")
async def test_a_store_opens_beside_a_dead_address(
    resolved: list[str], redis_server: Redis, redis_prefix: str
) -> None:
    resolved[:] = [SILENT, HOST]
    handle = RedisHandle(parse_url(f"redis://dual.example:{redis_server.port}", redis_prefix), SystemClock())
    await handle.open()
    assert await handle.shard.ask("PING") == b"PONG"
    await handle.close()


async def test_a_host_without_ipv6_takes_the_other_address(
    redis_server: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On such a host a socket of that family cannot be created."""
    make, six, four = socket.socket, socket.AF_INET6, socket.AF_INET
    found = [(six, 1, 6, "", ("::1", redis_server.port)), (four, 1, 6, "", (HOST, redis_server.port))]

    def without_six(family: int = four, *given: Any, **options: Any) -> socket.socket:
        if family == six:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return make(family, *given, **options)

    async def addresses(*_: Any) -> list[Any]:
        return found

    monkeypatch.setattr(sockets, "_addresses", addresses)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "socket", without_six)
    with open_blocking_socket("dual.example", redis_server.port, 1) as opened:
        assert opened.getpeername()[0] == HOST
    with await open_socket("dual.example", redis_server.port) as opened:
        assert opened.getpeername()[0] == HOST


async def test_if_all_addresses_are_dead_the_first_error_is_raised(resolved: list[str]) -> None:
    resolved[:] = ["127.0.0.3", "127.0.0.4"]
    with pytest.raises(ConnectionRefusedError):
        await open_socket("dual.example", free_port())
    with pytest.raises(ConnectionRefusedError):
        open_blocking_socket("dual.example", free_port(), 1)


def test_families_take_turns() -> None:
    six = [(socket.AF_INET6, 1, 6, "", (f"::{n}", 1)) for n in range(3)]
    four = [(socket.AF_INET, 1, 6, "", (f"10.0.0.{n}", 1)) for n in range(1)]
    assert interleave_families([*six, *four]) == [six[0], four[0], six[1], six[2]]
    assert interleave_families(four) == four
