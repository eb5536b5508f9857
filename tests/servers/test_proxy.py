"""The proxy causes exactly the requested faults, and only then."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tests.servers.certificates import Tls
from tests.servers.program import HOST
from tests.servers.proxy import Proxy
from tests.servers.redis import Redis


class Client:
    """Sends PING; a server answers +PONG."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def ask(self) -> None:
        self._writer.write(b"PING\r\n")

    async def hear(self, count: int = 7) -> bytes:
        return await self._reader.readexactly(count)

    async def ping(self) -> bytes:
        self.ask()
        return await self.hear()

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


@pytest.fixture
async def proxy(redis_server: Redis) -> AsyncIterator[Proxy]:
    async with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[Client]:
    client = await connect(proxy)
    yield client
    await client.close()


async def connect(proxy: Proxy, tls: ssl.SSLContext | None = None) -> Client:
    return Client(*await asyncio.open_connection(HOST, proxy.port, ssl=tls))


async def test_it_passes_everything_on(proxy: Proxy, client: Client) -> None:
    for _ in range(3):
        assert await client.ping() == b"+PONG\r\n"
    assert proxy.connections == 1


async def test_a_reset_is_heard(proxy: Proxy, client: Client) -> None:
    await client.ping()
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        await client.hear()


async def test_an_answer_is_cut_after_the_given_number_of_bytes(proxy: Proxy, client: Client) -> None:
    cut = proxy.cut_after(10)
    await client.ping()
    assert not cut.done()
    client.ask()
    assert await client.hear(3) == b"+PO"
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await client.hear(1)
    await cut
    second = await connect(proxy)
    assert await second.ping() == b"+PONG\r\n", "one cut is one cut"
    await second.close()


async def test_a_lost_answer_was_given(redis_server: Redis, redis_prefix: str, proxy: Proxy) -> None:
    """The server executes the request; only the reply is lost."""
    reader, writer = await asyncio.open_connection(HOST, proxy.port)
    cut = proxy.cut_after(0)
    writer.write(f"SET {redis_prefix}:done yes\r\n".encode())
    await cut
    with pytest.raises(ConnectionResetError):
        await reader.readexactly(1)
    writer.close()
    with redis_server.client() as direct:
        assert direct.get(f"{redis_prefix}:done") == "yes"


async def test_held_bytes_arrive_after_the_release(proxy: Proxy, client: Client) -> None:
    proxy.hold()
    client.ask()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await client.hear()
    proxy.release()
    assert await client.hear() == b"+PONG\r\n"


async def test_a_forgotten_connection_stays_silent(redis_server: Redis, proxy: Proxy, client: Client) -> None:
    await client.ping()
    proxy.forget()
    client.ask()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await client.hear()
    second = await connect(proxy)
    assert await second.ping() == b"+PONG\r\n"
    await second.close()


async def test_delay_holds_every_answer(proxy: Proxy, client: Client) -> None:
    clock = asyncio.get_running_loop().time
    proxy.delay = 0.05
    began = clock()
    await client.ping()
    assert clock() - began >= 0.05


async def test_refusing_is_for_the_new_ones(proxy: Proxy, client: Client) -> None:
    await client.ping()
    await proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await connect(proxy)
    assert await client.ping() == b"+PONG\r\n"
    await proxy.accept()
    second = await connect(proxy)
    assert await second.ping() == b"+PONG\r\n"
    await second.close()


async def test_without_a_server_the_client_is_reset() -> None:
    async with Proxy(1) as proxy:
        client = await connect(proxy)
        with pytest.raises(ConnectionResetError):
            await client.hear()
        await client.close()


async def test_it_speaks_tls(redis_tls: Tls) -> None:
    proxy, trusted = redis_tls.proxy, ssl.create_default_context(cafile=redis_tls.authority)
    client = await connect(proxy, trusted)
    assert await client.ping() == b"+PONG\r\n"
    await client.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(proxy, ssl.create_default_context())
